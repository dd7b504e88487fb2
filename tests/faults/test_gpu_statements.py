"""Faults before the statements of emulated GPUs: the table of all schemes, and points of some of them again."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.gpu.play import KINDS, left_since, play, threads_and_files
from tests.faults.gpu.statements import TABLE, acting, broken, points, sample, unharmed
from tests.support.shipped import ALL

DEADLINE = 2.0
PAGE = Path("docs/internals/liveness.md")
ROWS = json.loads(TABLE.read_text())


@pytest.mark.one_in(9)
@pytest.mark.parametrize("scheme", ROWS)
def test_a_fault_before_a_statement_breaks_no_promise(scheme: str) -> None:
    point, calm, row = sample(scheme), unharmed(scheme), ROWS[scheme]
    assert {end.outcome for end in calm.ends} == {"sum"}
    assert row["statements"] == [len(acting(scheme, rank)) for rank in range(row["ranks"])]
    of_kinds = Counter(point.kind for point in points(scheme))
    assert {kind: row[kind]["points"] for kind in KINDS} == {kind: of_kinds[kind] for kind in KINDS}
    played = play(scheme, point, DEADLINE)
    assert list(broken(point, played, DEADLINE)) == [], point
    before = threads_and_files()  # with those that a process makes once, at its first fault
    play(scheme, point, DEADLINE)
    assert left_since(before) == (0, 0)


def test_the_table_has_each_statement_of_all_schemes() -> None:
    """``python -m tests.faults.gpu.statements`` writes the table."""
    assert list(ROWS) == ALL
    for row in ROWS.values():
        assert [row[kind]["points"] for kind in KINDS] == [sum(row["statements"])] * len(KINDS)
        assert all(row[kind]["broken"] == [] for kind in KINDS)
        assert (row["threads_left"], row["files_left"]) == (0, 0)
    faults = sum(row[kind]["points"] for row in ROWS.values() for kind in KINDS)
    assert f"has {faults:,} faults" in PAGE.read_text(encoding="utf-8")
