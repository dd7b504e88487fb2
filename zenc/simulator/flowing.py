"""Flowing calls: the steps of trees whose pull begins early, joined with those of the push that run beside them.

On CPUs trees go so (``zenc.rank_ir.flowing``): a rank is in all messages of joined steps at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import numpy.typing as npt

from zenc.language.schedule import Trees
from zenc.plan.ir import VALUE_KINDS, Plan
from zenc.rank_ir.exchanges import schedules
from zenc.simulator.event_sim import Clock, Costs
from zenc.simulator.symmetry import ClassProgram, Stage

Floats = npt.NDArray[np.float64]


def early_steps(plan: Plan, size: int) -> int:
    """Return ``RankProgram.early`` of trees among ``size`` ranks; 0 of other plans."""
    statements = (statement for phase in plan.of(*VALUE_KINDS) for statement in phase.block)
    return schedules(plan, size, ()).early if any(isinstance(each, Trees) for each in statements) else 0


@dataclass(frozen=True, slots=True)
class Joined:
    """Numbers of stages that are joined, in the order of ``groups``; a rank takes ``step`` seconds to begin one."""

    groups: tuple[tuple[int, ...], ...]
    step: float

    def program(self, of: ClassProgram) -> ClassProgram:
        """Return ``of`` with joined stages."""
        return replace(of, stages=tuple([_stage([of.stages[i] for i in group]) for group in self.groups]))

    def costs(self, of: Costs) -> Costs:
        """Return the costs of joined stages, each of which begins once."""
        before = zip(self._sums(of.before), self.groups, strict=True)
        return replace(
            of,
            before=[each - self.step * (len(group) - 1) for each, group in before],
            beside=self._sums(of.beside),
            after=self._sums(of.after),
            loads=[np.concatenate([of.loads[i] for i in group]) for group in self.groups],
            delays=[np.concatenate([of.delays[i] for i in group]) for group in self.groups],
        )

    def clock(self, clock: Clock) -> Clock:
        """Return ``clock`` with the times of each stage that was joined."""
        place = np.argsort([i for group in self.groups for i in group])
        of = np.repeat(np.arange(len(self.groups)), [len(group) for group in self.groups])[place]
        spans = [replace(span, stage=self.groups[span.stage][0]) for span in clock.spans]
        return replace(clock, since=clock.since[of], until=clock.until[of], spans=spans)

    def _sums(self, each: Sequence[Floats]) -> list[Floats]:
        return [np.sum([each[i] for i in group], axis=0) for group in self.groups]


def joined(of: ClassProgram, early: int, step: float) -> Joined:
    """Return the stages of ``of`` that run at once where the pull begins ``early`` steps before its turn."""
    turns = sorted((i - early * stage.phase.completes, i) for i, stage in enumerate(of.stages))
    groups = groupby(turns, key=lambda turn: turn[0])
    return Joined(tuple([tuple([i for _, i in group]) for _, group in groups]), step)


def _stage(stages: Sequence[Stage]) -> Stage:
    """Return one stage with the flows of all, whose segments have been counted."""
    first = np.cumsum([0, *(len(stage.src) for stage in stages)])
    return replace(
        stages[0],
        bytes=np.concatenate([stage.bytes for stage in stages]),
        src=np.concatenate([stage.src for stage in stages]),
        dst=np.concatenate([stage.dst for stage in stages]),
        out=np.concatenate([stage.out for stage in stages]),
        into=np.concatenate([stage.into for stage in stages]),
        flow=np.concatenate([stage.flow + at for stage, at in zip(stages, first, strict=False)]),
        link=np.concatenate([stage.link for stage in stages]),
        times=np.concatenate([stage.times for stage in stages]),
    )
