"""Faults before the statements of each shipped scheme: a sample in the simulator, two with processes, and the table."""

from __future__ import annotations

import json

import pytest

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
