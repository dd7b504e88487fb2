"""Lowering of a plan to rank programs: the schedule of one rank, played with numbers of segments.

The meaning of phases and moves is that of ``zenc.plan.ir``: pieces of a part are
added in the order of the ranks that held them, at once or, under one-shot aggregation, when the phase ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from zenc.plan.ir import SET_KINDS, VALUE_KINDS, PhaseKind, Plan
from zenc.plan.tier_layout import TierLayout, first_part, levels_of
from zenc.rank_ir.exchanges import Piece, RankSchedule, RankStep, Schedules, schedules
from zenc.rank_ir.ir import RankProgram
from zenc.rank_ir.lowering import Lowering, needless_parts
from zenc.rank_ir.uses import with_uses


def lower(plan: Plan, size: int, rank: int) -> RankProgram:
    """Return the program of ``rank`` among ``size`` under ``plan``, which is proved; raises VerificationError."""
    return lower_all(plan, size, (rank,))[0]


def lower_all(plan: Plan, size: int, ranks: Iterable[int] | None = None) -> tuple[RankProgram, ...]:
    """Return the programs of ``ranks``, or of all, among ``size``, by one proof; raises VerificationError."""
    chosen = tuple(range(size) if ranks is None else ranks)
    of = schedules(plan, size, chosen)
    return tuple([_lowered(plan, rank, size, of) for rank in chosen])


def _lowered(plan: Plan, rank: int, size: int, of: Schedules) -> RankProgram:
    schedule, keeps = of.of_rank[rank], frozenset() if of.keepers is None else of.keepers.of(rank)
    if plan.across is not None:
        return _lowered_tiers(plan, rank, size, schedule)
    program = _played(Lowering(plan, rank, size, plan.parts(size), keeps), schedule, of.encoded)
    return replace(program, early=of.early) if of.early else program


def _lowered_tiers(plan: Plan, rank: int, size: int, schedule: RankSchedule) -> RankProgram:
    """Return the program of a plan whose outermost tier has owners of its own: the inner tiers', with one inside.

    The tiers inside move the parts of their own mapping: all the parts that the outermost tier makes of one, together.
    The ranks that hold one part then sum it among themselves.
    """
    inside, level = plan.inside, levels_of(plan, size)[-1]
    inner = {phase.name: [_of_inside(step, level.members) for step in schedule[phase.name]] for phase in inside.phases}
    (pushes, pulls), needless = (inside.of(kind) for kind in VALUE_KINDS), needless_parts(inside, inner)
    (announce,) = plan.of(PhaseKind.ANNOUNCE)
    lowering = Lowering(inside, rank, size, plan.parts_of_mapping(size), frozenset())
    lowering.order = (*pushes, announce, *pulls)
    lowering.pack(pushes[0])
    for phase, following in zip(pushes, (*pushes[1:], announce), strict=True):
        lowering.play(phase, inner[phase.name])
        lowering.reshape(needless[phase.name], following)
        lowering.close(phase)
    own = int(first_part(levels_of(plan, size)[:-1], np.array([rank]))[0]) // level.members
    lowering.sum_across(own, level.peers(rank), _outermost(plan, rank, level, schedule), pulls[0])
    lowering.close(announce)
    for phase, after in zip(pulls, (*pulls[1:], None), strict=True):
        lowering.play(phase, inner[phase.name])
        if after is not None:
            lowering.reshape(needless[phase.name], after)
        lowering.close(phase)
    return with_uses(lowering.done())


def _of_inside(step: RankStep, cut: int) -> RankStep:
    """Return ``step`` with each ``cut`` consecutive parts as one."""

    def whole(messages: Mapping[int, list[Piece]]) -> dict[int, list[Piece]]:
        return {
            peer: [piece._replace(part=piece.part // cut) for piece in pieces if piece.part % cut == 0]
            for peer, pieces in messages.items()
        }

    return replace(step, sends=whole(step.sends), receives=whole(step.receives))


def _outermost(plan: Plan, rank: int, level: TierLayout, schedule: RankSchedule) -> RankProgram:
    """Return the program of the outermost tier alone, in which a rank's number is its place in its group."""
    outside, cut = plan.outside, level.members

    def among(pieces: Iterable[Piece]) -> list[Piece]:
        return [
            Piece(part % cut, origin // level.inner, tuple(sorted({each // level.inner for each in ranks})))
            for part, origin, ranks in pieces
        ]

    def step_of(step: RankStep) -> RankStep:
        sends, receives = (
            {peer // level.inner: among(pieces) for peer, pieces in messages.items()}
            for messages in (step.sends, step.receives)
        )
        return RankStep(rank // level.inner, step.number, sends, receives)

    steps = {phase.name: [step_of(step) for step in schedule[phase.name]] for phase in outside.phases}
    return _played(Lowering(outside, rank // level.inner, cut, cut, frozenset()), steps, {})


def _played(lowering: Lowering, schedule: RankSchedule, encoded: Mapping[str, Iterable[int]]) -> RankProgram:
    """Return the program of all phases, each by its steps; ``encoded`` are the parts sent in a phase with a code."""
    plan, needless = lowering.plan, needless_parts(lowering.plan, schedule)
    if not plan.announces:
        lowering.pack(plan.phases[0])
    for phase, following in zip(plan.phases, (*plan.phases[1:], None), strict=True):
        if phase.kind is PhaseKind.ANNOUNCE:
            lowering.announce(phase, schedule)
        if phase.kind in SET_KINDS:
            continue
        if phase.kind is PhaseKind.PULL and phase.code is not None:
            lowering.encode_sums(phase, encoded[phase.name])
        lowering.play(phase, schedule[phase.name])
        if following is not None:
            lowering.reshape(needless[phase.name], following)
        lowering.close(phase)
    return with_uses(lowering.done())
