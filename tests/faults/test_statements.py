"""Faults before statements, of ranks and of emulated GPUs: tables of all schemes, and points of some again."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.gpu import play as gpu
from tests.faults.gpu import statements as on_gpus
from tests.faults.statements import KINDS, TABLE, played, sample, unharmed
from tests.support.ranks import Ranks, RanksFailed
from tests.support.shipped import ALL

ROWS = json.loads(TABLE.read_text())


@pytest.mark.parametrize("scheme", ALL)
def test_a_fault_before_each_statement_breaks_no_promise(scheme: str) -> None:
    outcomes = [(point, *played(point)) for point in sample(scheme)]
    assert [(point, wrong) for point, _, wrong in outcomes if wrong] == []
    statements = list(unharmed(scheme).statements.values())
    assert len(outcomes) == max(statements) > 0 and ROWS[scheme]["statements"] == statements


@pytest.mark.slow
def test_the_table_has_each_statement_of_each_scheme() -> None:
    """``python -m tests.faults.statements`` writes the table."""
    assert list(ROWS) == ALL
    for row in ROWS.values():
        for kind in KINDS:
            assert row[kind]["points"] == sum(row["statements"]) and row[kind]["broken"] == []


@pytest.mark.parametrize(("scheme", "statement", "shared"), [("balanced", 1, True), ("dense_ring", 4, False)])
def test_a_process_that_dies_before_a_statement(scheme: str, statement: int, shared: bool) -> None:
    """Connections tell survivors long before the deadline, even those that don't wait for the dead rank."""
    with Ranks(4) as ranks, pytest.raises(RanksFailed) as caught:
        job = "tests.runtime.jobs:error_of"
        told = {"scheme": scheme, "statement": statement, "shared": shared, "deadline": 100.0}
        ranks.run(job, call="dies_before", seconds=90, **told)
    assert set(caught.value.errors) == {1}
    for kind, text, seconds in caught.value.results.values():
        assert kind == "SynchronisationError" and "peer-lost" in text and seconds < 60


DEADLINE = 2.0
PAGE = Path("docs/internals/liveness.md")
OF_GPUS = json.loads(on_gpus.TABLE.read_text())


@pytest.mark.one_in(9)
@pytest.mark.parametrize("scheme", OF_GPUS)
def test_a_fault_before_a_statement_breaks_no_promise(scheme: str) -> None:
    point, calm, row = on_gpus.sample(scheme), on_gpus.unharmed(scheme), OF_GPUS[scheme]
    assert {end.outcome for end in calm.ends} == {"sum"}
    assert row["statements"] == [len(on_gpus.acting(scheme, rank)) for rank in range(row["ranks"])]
    of_kinds = Counter(point.kind for point in on_gpus.points(scheme))
    assert {kind: row[kind]["points"] for kind in gpu.KINDS} == {kind: of_kinds[kind] for kind in gpu.KINDS}
    played = gpu.play(scheme, point, DEADLINE)
    assert list(on_gpus.broken(point, played, DEADLINE)) == [], point
    before = gpu.threads_and_files()  # with those that a process makes once, at its first fault
    gpu.play(scheme, point, DEADLINE)
    assert gpu.left_since(before) == (0, 0)


def test_the_table_has_each_statement_of_all_schemes() -> None:
    """``python -m tests.faults.gpu.statements`` writes the table."""
    assert list(OF_GPUS) == ALL
    for row in OF_GPUS.values():
        assert [row[kind]["points"] for kind in gpu.KINDS] == [sum(row["statements"])] * len(gpu.KINDS)
        assert all(row[kind]["broken"] == [] for kind in gpu.KINDS)
        assert (row["threads_left"], row["files_left"]) == (0, 0)
    faults = sum(row[kind]["points"] for row in OF_GPUS.values() for kind in gpu.KINDS)
    assert f"has {faults:,} faults" in PAGE.read_text(encoding="utf-8")
