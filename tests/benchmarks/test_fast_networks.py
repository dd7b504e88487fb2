"""``benchmarks/fast_networks.py``: that its page has the table of its last run, and what is said to be met."""

from __future__ import annotations

import json

from benchmarks.fast_networks import BEGIN, END, PAGE, POINTS, RESULTS, shown, verdict


def test_the_page_has_the_table_of_the_last_run():
    assert f"{BEGIN}\n\n{shown(json.loads(RESULTS.read_text())['rows'])}\n\n{END}" in PAGE.read_text("utf-8")


def test_the_best_scheme_is_held_against_the_aim():
    rows = [
        {"ranks": 4, "rate": "1gbit", "peer": peer, "ms": ms, "faster": 50 / ms, "wire": 20.0}
        for peer, ms in (("torch-coo", 50.0), ("balanced", 25.0), ("holders", 40.0))
    ]
    told = verdict(POINTS[1], rows)
    assert told == (
        "4 hosts, 1gbit: torch / the best 2.00, at least 1.7 wanted: met; time / wire 1.25, at most 1.25: met"
    )
    rows[1]["ms"] = 26.0
    assert verdict(POINTS[1], rows).endswith("time / wire 1.30, at most 1.25: missed")
