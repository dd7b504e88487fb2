"""``benchmarks/one_machine.py``: that its page has the table of its last run, and how times become rows."""

from __future__ import annotations

import json

from benchmarks import one_machine
from benchmarks.one_machine import BEGIN, END, PAGE, PEERS, RESULTS, TORCH


def test_the_page_has_the_table_of_the_last_run() -> None:
    found = json.loads(RESULTS.read_text("utf-8"))
    page = PAGE.read_text("utf-8")
    assert f"{BEGIN}\n\n{one_machine.table(found['rows'])}\n\n{END}" in page
    assert ("--realtime" in page) == found["realtime"]
    by = {(row["ranks"], row["peer"]): row["ms"] for row in found["rows"]}
    assert all(by[ranks, "balanced"] < by[ranks, "balanced, wire"] for ranks, _ in by)


def test_a_call_takes_from_the_first_rank_to_the_last() -> None:
    first = {name: [(0.0, 2.0, 0.5), (10.0, 13.0, 0.5)] for name in PEERS}
    second = {name: [(1.0, 2.5, 0.1), (9.0, 12.0, 0.1)] for name in PEERS} | {
        TORCH: [(0.0, 5.0, 1.0), (9.0, 17.0, 1.0)]
    }
    rows = {row["peer"]: row for row in one_machine.rows_of(2, [first, second], 0.25)}
    assert rows["agsparse"]["ms"] == 3250 and rows[TORCH]["ms"] == 6500 and rows["agsparse"]["others"] == 0.25
    assert rows["agsparse"]["ratio"] == 2 and rows[TORCH]["ratio"] == 1 and rows["agsparse"]["processor"] == 300
