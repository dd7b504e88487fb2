"""``benchmarks/calls.py``: that its page has the table of its last run, and what that has to hold."""

from __future__ import annotations

import json

from benchmarks import calls, table_steps
from benchmarks.calls import BEGIN, END, PAGE, RESULTS, TASKS, WAYS


def test_the_page_has_the_table_of_the_last_run() -> None:
    """Processor time of a call of rows over TCP is as aimed at, the time of ten tables in one call nearly."""
    found = json.loads(RESULTS.read_text("utf-8"))
    assert f"{BEGIN}\n\n{calls.shown(found)}\n\n{END}" in PAGE.read_text("utf-8")
    of = {(row["way"], row["scheme"], row["task"]): row for row in found["rows"]}
    assert of["connections", "balanced", "rows"]["processor"] <= 3
    assert of["connections", "holders", "rows"]["processor"] <= 6
    assert all(
        of[way, scheme, "in turn"]["ms"] >= 1.9 * of[way, scheme, "coalesced"]["ms"]
        for way in WAYS
        for scheme in calls.SCHEMES
    )


def test_the_page_has_the_steps_of_the_last_run() -> None:
    """Many small tables gain by sharing a call, and few or large ones lose no more than noise."""
    found = json.loads(table_steps.RESULTS.read_text("utf-8"))
    assert f"{table_steps.BEGIN}\n\n{table_steps.shown(found)}\n\n{table_steps.END}" in PAGE.read_text("utf-8")
    gains = {
        (run["ranks"], run["model"], scheme): of[scheme, "a call each"] / of[scheme, "joined"]
        for run in found["runs"]
        for of in [{(row["scheme"], row["task"]): row["ms"] for row in run["rows"]}]
        for scheme in table_steps.SCHEMES
    }
    assert len(gains) == len(table_steps.RANKS) * len(table_steps.MODELS) * len(table_steps.SCHEMES)
    assert min(gains.values()) >= 0.85
    assert all(gain >= 1.2 for (_, model, _), gain in gains.items() if model in ("10", "26"))


def test_a_task_takes_from_the_first_rank_to_the_last() -> None:
    name = f"memory/balanced/{TASKS[0]}"
    (row,) = calls.rows_of([{name: [(0.0, 2.0, 0.5)]}, {name: [(1.0, 2.5, 0.1)]}])
    assert row == {"way": "memory", "scheme": "balanced", "task": "rows", "ms": 2500, "processor": 300}
