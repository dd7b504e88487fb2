"""``benchmarks/averaging.py``: the guide has the table of its last run, and averages are those of groups."""

from __future__ import annotations

import json

import torch

from benchmarks.averaging import SMALL, WAYS, Ranks, averaging_of, sent, table
from tests.docs.pages import ROOT


def test_the_guide_has_the_table_of_the_last_run() -> None:
    found = json.loads((ROOT / "benchmarks/results/averaging.json").read_text(encoding="utf-8"))
    assert {row["way"] for row in found["rows"]} == set(WAYS) and len(found["rows"]) == 2 * len(WAYS)
    assert table(found["rows"]) in (ROOT / "docs/guides/alternate.md").read_text(encoding="utf-8")


def test_a_period_of_averages_makes_all_ranks_equal() -> None:
    ranks = Ranks(0, own_text=True, sizes=SMALL, ranks=4)
    ranks.step(0.1)
    mean = ranks.values.mean(dim=0)
    assert ranks.apart > 0
    for groups in averaging_of("rows(2), columns(2)").groups(4):
        ranks.average(groups)
    torch.testing.assert_close(ranks.values, mean.expand_as(ranks.values))
    assert ranks.bits(mean) > 1
    assert [round(sent(divisions), 3) for divisions in WAYS.values()] == [1.875, 1.5, 0.938, 1.5]
