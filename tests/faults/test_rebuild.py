"""Residuals in the simulator: after a death at any statement the kept residuals of the ranks fit together."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from tests.faults.gradients import WIDTH
from tests.faults.play import Record, Run
from tests.faults.scenario import CallSpec, Fault, Scenario
from zenc.runtime.call.collective import Collective

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
