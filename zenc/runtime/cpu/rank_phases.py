"""The phases of a plan as one rank plays them, over a cut that is fixed: what all calls share, made once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zenc.plan.ir import PhaseKind, Plan
from zenc.plan.rank_schedule import RankSchedule, RankStep
from zenc.plan.tier_layout import levels_of
from zenc.scheme.model import Format


@dataclass(frozen=True, slots=True)
class RankPhase:
    """One phase, a push or a pull, as one rank plays it.

    ``next_format`` is the format of the phase that follows, or its own for the last. ``last[part]`` is the last step
    of a push that moves a part from or to this rank. ``needless`` are the parts of which it needs nothing more when
    the phase ends. ``origins`` are the ranks that a one-shot push collects from; None for all other phases.
    """

    steps: tuple[RankStep, ...]
    kind: PhaseKind
    is_last: bool
    one_shot: bool
    format: Format
    next_format: Format
    last: Mapping[int, int]
    needless: frozenset[int]
    origins: tuple[int, ...] | None

    def format_after(self, part: int, step: int) -> Format:
        """The format of the message that will carry ``part`` after ``step``.

        That is the next phase's, if this one moves the part no more.
        """
        return self.next_format if self.last.get(part, 0) <= step else self.format


def rank_phases(plan: Plan, program: RankSchedule, size: int) -> tuple[RankPhase, ...]:
    """All pushes and pulls of ``plan`` among ``size`` ranks, for the rank of ``program``."""
    levels, phases = levels_of(plan, size), program.phases
    return tuple(
        RankPhase(
            steps=of.steps,
            kind=of.phase.kind,
            is_last=following is None,
            one_shot=of.phase.one_shot,
            format=of.phase.format,
            next_format=(following or of).phase.format,
            last=of.last,
            needless=of.needless,
            origins=tuple(levels[of.phase.tier.depth].peers(program.rank)) if of.phase.keeps_apart else None,
        )
        for of, following in zip(phases, (*phases[1:], None), strict=True)
    )
