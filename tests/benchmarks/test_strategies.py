"""``benchmarks/strategies``: the page is made of its JSON, and no choice is worse than simple ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.strategies import __main__ as strategies
from benchmarks.strategies import espresso, groups, others
from benchmarks.strategies.page import with_results
from benchmarks.strategies.traces import models, published, trace

COMMITTED: dict[str, Any] = json.loads(strategies.JSON.read_text(encoding="utf-8"))


def test_the_page_is_what_its_json_says() -> None:
    page = strategies.PAGE.read_text(encoding="utf-8")
    assert with_results(page, COMMITTED) == page
    assert COMMITTED["published"] == published()


def test_a_case_of_each_table_is_computed_again() -> None:
    """The small ones; `make strategies` computes all, in half a minute."""
    lstm = next(row for row in espresso.rows_of("LSTM"))
    assert lstm == pytest.approx(next(row for row in COMMITTED["espresso"] if row["model"] == "LSTM"))
    assert groups.row("LSTM", "dgc") == pytest.approx(next(r for r in COMMITTED["groups"] if r["model"] == "LSTM"))
    assert others.byteps()["steps"] == pytest.approx(COMMITTED["byteps"]["steps"])


def test_no_choice_is_worse_than_nothing_everything_or_two_groups() -> None:
    cases = COMMITTED["never worse"]
    assert len(cases) == len(models()) * len(espresso.TOPOLOGIES) * len(espresso.COMPRESSORS)
    worse = [case for case in cases if case["best"] > min(case["plain"], case["all"], case["two groups"])]
    assert worse == []


def test_no_crippled_search_is_better_than_the_whole_one() -> None:
    dimensions = ("on the GPU alone", *espresso.CRIPPLED, "one pass")
    better = [row for row in COMMITTED["crippled"] if any(row[name] < 1 - 1e-9 for name in dimensions)]
    assert better == []


def test_choices_take_no_longer_than_published() -> None:
    """As they were measured when the page was written."""
    slow = [r["model"] for r in COMMITTED["times"] if r["selection ms"] > r["selection published"]]
    slow += [r["model"] for r in COMMITTED["times"] if r["offload ms"] > r["offload published"]]
    assert slow == []


def test_traces_read_modulo_are_shorter() -> None:
    assert trace("BERT-base").computing > trace("BERT-base", "modulo").computing
    assert len(trace("BERT-base").tensors) == 199
