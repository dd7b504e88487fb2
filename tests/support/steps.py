"""Rounds and tiers of a plan as the moves and shapes that ``tests.support.executor`` plays."""

from __future__ import annotations

from tests.support.executor import Held, Loss, Move, Shape, Steps, execute
from zenc.plan.ir import VALUE_KINDS, Plan
from zenc.plan.unroll import Round, Rounds
from zenc.scheme.model import Partition
from zenc.verify.losses import forwards_sealed


def steps_of(rounds: tuple[Round, ...]) -> Steps:
    """Return one move a part."""
    return [
        [
            Move(int(src), int(dst), part, int(origin))
            for src, dst, first, last, origin in zip(r.src, r.dst, r.first, r.last, r.origin, strict=True)
            for part in range(int(first), int(last) + 1)
        ]
        for r in rounds
    ]


def shapes_of(plan: Plan, size: int) -> list[Shape]:
    """Return the tiers of ``plan`` among ``size`` ranks."""
    counts = zip(plan.tiers, plan.counts(size), strict=True)
    return [Shape(n, n if tier.partition is Partition.PARALLELISM else 1, tier.one_shot) for tier, n in counts]


def assert_plays(plan: Plan, rounds: Rounds) -> Held:
    """Play ``rounds``, and return the final pieces; raise Wrong unless they do what ``plan`` is for."""
    return execute(*phases_of(rounds), shapes_of(plan, rounds.size), losses_of(plan))


def losses_of(plan: Plan) -> list[Loss]:
    found = list[Loss]()
    for before, phase in zip((None, *plan.of(*VALUE_KINDS)), plan.of(*VALUE_KINDS), strict=False):
        code = phase.code.summability.value if phase.code else ""
        sealed = before is not None and phase.code is not None and forwards_sealed(before, phase)
        found.append(Loss(phase.name, code, bool(phase.select), sealed))
    return found


def phases_of(rounds: Rounds) -> tuple[list[Steps], list[Steps]]:
    pushes, pulls = ([steps_of(phase) for phase in rounds.of(kind)] for kind in VALUE_KINDS)
    return pushes, pulls
