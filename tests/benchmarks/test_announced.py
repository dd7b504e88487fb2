"""The measurement of announced calls: what its table makes of the ranks' records."""

from __future__ import annotations

from benchmarks.announced import WAYS, rows_of, table


def test_exposed_is_from_the_last_gradient_to_the_last_sum():
    seconds = {"usual": 0.004, "announced": 0.002, "wrong": 0.008}
    early = {way: [(step, step + 0.001 + each, 700) for step in range(4)] for way, each in seconds.items()}
    late = {way: [(step + 0.001, step + 0.001 + each / 2, 900) for step in range(4)] for way, each in seconds.items()}
    rows = rows_of([early, late])
    assert [row["way"] for row in rows] == list(WAYS)
    assert [row["exposed_ms"] for row in rows] == [4.0, 2.0, 8.0]
    assert [row["share"] for row in rows] == [1.0, 0.5, 2.0]
    assert {row["bytes"] for row in rows} == {700}
    assert "| announced | 2.00 | 0.50 (0.50 to 0.50) | 700 |" in table({"ranks": 2, "rate": "1gbit", "rows": rows})
