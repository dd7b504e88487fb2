"""Faults before statements, of ranks and of emulated GPUs: tables of all schemes, and points of some again."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.faults.gpu import play as gpu
from tests.faults.gpu import statements as on_gpus
from tests.faults.gradients import WIDTH
from tests.faults.play import Record, Run
from tests.faults.scenario import CallSpec, Fault, Scenario
from tests.faults.statements import KINDS, TABLE, played, sample, unharmed
from tests.support.ranks import Ranks, RanksFailed
from tests.support.shipped import ALL
from zenc.runtime.call.collective import Collective

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


UNITS, OTHER, SIZE = 60, 7, 3
CALLS = tuple(CallSpec(0, units, True, "sum", salt) for salt, units in enumerate((UNITS, OTHER, UNITS, OTHER)))
NAME = f"of {UNITS} units"
SEEDS = 120


class KeepingRun(Run):
    """A run that notes each rank's residuals after each call, and at the start of the next group."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.loaded: dict[int, Collective] = {}
        self.after: dict[int, list[torch.Tensor]] = {rank: [torch.zeros(UNITS, WIDTH)] for rank in range(SIZE)}
        self.begun: dict[int, tuple[int, torch.Tensor]] = {}

    def _loaded(self, process: Any, communicator: Any, scheme: str, before: Collective | None) -> Collective:
        made = super()._loaded(process, communicator, scheme, before)
        self.loaded[process.rank] = made
        if before is not None or (communicator is not None and self.deaths):
            self.begun[process.rank] = kept(made)
        return made

    def _note(self, record: Record, *given: Any, **more: Any) -> None:
        super()._note(record, *given, **more)
        if (
            record.call is not None
            and record.call.units == UNITS
            and record.outcome == "sum"
            and record.generation == 0
        ):
            self.after[record.rank].append(kept(self.loaded[record.rank])[1])


def kept(collective: Collective) -> tuple[int, torch.Tensor]:
    """Return how often the tensor was summed, and its residual."""
    counts = collective.keeper.counts() if collective.keeper else {}
    return (counts[NAME].step, collective.residual(NAME)) if NAME in counts else (0, torch.zeros(UNITS, WIDTH))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("scheme", "least"), [("topk_a2a", 1), ("one_bit", 0)])
def test_what_is_kept_belongs_together(scheme: str, least: int) -> None:
    """Ranks have counted as many calls, each keeps its residual after these, and a new rank has none."""
    ends = Counter[str]()
    for seed in range(SEEDS):
        fault = Fault("kills", seed % SIZE, 2 + seed % 41, at_statement=True)
        faulty = Scenario(seed, SIZE, (scheme,), CALLS, faults=(fault,), rejoins=True, restarts=0.0, streams=True)
        run = KeepingRun(faulty)
        run.play()
        second = [record.outcome for record in run.records if record.generation == 1]
        ends.update(second)
        if second.count("loaded") < SIZE:
            continue
        counts = {count for count, _ in run.begun.values()}
        assert len(run.begun) == SIZE and len(counts) == 1, (seed, run.begun)
        (count,) = counts
        for rank in set(range(SIZE)) - {fault.rank}:
            assert torch.equal(run.begun[rank][1], run.after[rank][count]), (seed, rank)
            ends["undone"] += len(run.after[rank]) > count + 1
        assert not run.begun[fault.rank][1].any()
    assert ends["undone"] >= least and ends["loaded"] == ends["sum"] > SEEDS, ends
    assert set(ends) <= {"loaded", "sum", "undone", "different-states", "deadline"}, ends
