"""``benchmarks/publish.py``: that the guide has the table of its last run, and what that run found."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import publish


def test_the_guide_has_the_table_of_the_last_run() -> None:
    rows = json.loads((Path(publish.__file__).parent / "results" / "publish.json").read_text("utf-8"))["rows"]
    guide = Path(publish.__file__).parents[1] / "docs" / "guides" / "publish.md"
    assert publish.table(rows) in guide.read_text("utf-8")
    assert min(each["pairs_over_ours"] for each in rows if each["dtype"] == "bfloat16") > 4


def test_a_row_counts_what_was_published(monkeypatch) -> None:
    monkeypatch.setattr(publish, "RATES", (1e-5,))
    found = {(each["every"], each["dtype"]): each for each in publish.measured(1, 1)}
    assert set(found) == {(every, dtype) for every in publish.EVERY for dtype in publish.DTYPES}
    assert found[1, "bfloat16"]["changed"] < found[10, "bfloat16"]["changed"] < 1
