"""Halves of a rank program: the pushes alone, which end at the owners of parts, and the pulls alone, from there.

    whole = pushes | pulls            # the pulls, of the pushes' sums, bring the whole program's result

The statements are those of the whole program, by the same lowering; the owners of parts follow from the proof.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from zenc.plan.expressions import Mask
from zenc.plan.ir import VALUE_KINDS, PhaseKind, Plan
from zenc.plan.unroll import expand
from zenc.rank_ir.exchanges import RankSchedule, schedules
from zenc.rank_ir.ir import RankProgram
from zenc.rank_ir.lower import lower
from zenc.rank_ir.lowering import Lowering, needless_parts
from zenc.rank_ir.uses import with_uses
from zenc.scheme.compression import Rounded
from zenc.verify.proof import prove_halves


def lower_half(plan: Plan, size: int, rank: int, half: PhaseKind) -> RankProgram:
    """Return the program of ``rank`` that plays the pushes or the pulls of ``plan`` alone, each proved on its own.

    The pushes end with the parts that this rank owns: in the form in which it has them at the end of the whole program,
    so that they are its part of the sum. The pulls begin with them: packed segments of other parts are freed at once.
    No plan with an announce, a code or a selection is cut in halves. Raises VerificationError.
    """
    rounds = expand(plan, size)
    owned = prove_halves(plan, rounds)[rank]
    schedule = schedules(plan, size, (rank,)).of_rank[rank]
    lowering = Lowering(plan, rank, size, plan.parts(size), frozenset())
    if half is PhaseKind.PUSH:
        _lower_pushes(lowering, schedule)
        lowering.held = [of if owned[part] else {} for part, of in enumerate(lowering.held)]
    else:
        before = sum(map(len, rounds.of(PhaseKind.PUSH)))
        _lower_pulls(lowering, schedule, owned, before)
    return with_uses(lowering.done())


def lower_part(plan: Plan, size: int, rank: int, part: PhaseKind | Rounded) -> RankProgram:
    """Return the program of a half of ``plan``; or of all of it, with a code for the phases that have none."""
    if isinstance(part, Rounded):
        return lower(plan.rounded(part), size, rank)
    return lower_half(plan, size, rank, part)


@lru_cache(maxsize=64)
def owned_parts(plan: Plan, size: int, rank: int) -> tuple[int, ...]:
    """Return the parts that ``rank`` has complete after the pushes, proving each half; raises VerificationError."""
    owned = prove_halves(plan, expand(plan, size))[rank]
    return tuple(part for part, mine in enumerate(owned.tolist()) if mine)


def _lower_pushes(lowering: Lowering, schedule: RankSchedule) -> None:
    """Play the pushes, and the whole program's later statements on the parts that this rank owns."""
    plan, needless = lowering.plan, needless_parts(lowering.plan, schedule)
    pushes, pulls = (plan.of(kind) for kind in VALUE_KINDS)
    lowering.pack(plan.phases[0])
    for phase, following in zip(pushes, plan.phases[1:], strict=False):
        lowering.play(phase, schedule[phase.name])
        lowering.reshape(needless[phase.name], following)
        if phase is not pushes[-1]:
            lowering.close(phase)
    for phase, following in pairwise(pulls):
        lowering.play(phase, ())
        lowering.reshape(needless[phase.name], following)
    lowering.close(pushes[-1])


def _lower_pulls(lowering: Lowering, schedule: RankSchedule, owned: Mask, before: int) -> None:
    """Play the pulls, from sums of the parts that are ``owned`` [parts], after ``before`` steps of the whole program.

    Their steps are counted from 1, so that ranks that make other calls meet, and notice it.
    """
    plan, needless = lowering.plan, needless_parts(lowering.plan, schedule)
    pulls = plan.of(PhaseKind.PULL)
    lowering.pack_sums(pulls[0], owned)
    for phase, following in zip(pulls, (*pulls[1:], None), strict=True):
        lowering.play(phase, [replace(step, number=step.number - before) for step in schedule[phase.name]])
        if following is not None:
            lowering.reshape(needless[phase.name], following)
        lowering.close(phase)
