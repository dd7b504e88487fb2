"""Capacity mode: the room for the units of a call on a GPU, which is fixed before anything of it is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from zenc.errors import Diagnostic, ZencError
from zenc.plan.ir import PhaseKind, Plan
from zenc.scheme.compression import Fixed
from zenc.scheme.model import Encoded, Format

Shares: TypeAlias = float | tuple[float, float]
"""Shares as users give them: ``FixedCapacity.own``, or both."""


@dataclass(frozen=True, slots=True)
class FixedCapacity:
    """Capacities as shares of each part's units: ``own`` for a rank's gradient, and ``total`` for any sum."""

    own: float
    total: float

    def __str__(self) -> str:
        return f"capacity {self.own:g}, {self.total:g}"


def capacity_of(given: Shares | None, plan: Plan, size: int) -> FixedCapacity | None:
    """Return the capacities by ``given`` for ``plan``; raises ZencError ``bad-capacity``, ``no-capacity-mode``.

    Without a share for sums, theirs is that of all ``size`` ranks together.
    """
    if given is None:
        return None
    if why := _no_room_because(plan):
        message = f"{plan.scheme} has no capacity mode: {why}"
        raise ZencError(Diagnostic("no-capacity-mode", message, help="leave out capacity="))
    own, total = given if isinstance(given, tuple) else (given, min(1.0, given * size))
    if not 0 < own <= total <= 1:
        message = f"capacity={given!r} is no share of the units"
        help = "give the greatest density of a rank's gradient, above 0 and up to 1, or a pair: with that of the sum"
        raise ZencError(Diagnostic("bad-capacity", message, help=help))
    return FixedCapacity(own, total)


def _no_room_because(plan: Plan) -> str:
    """Return why no room can be made for the calls of ``plan`` before anything is known; empty where it can."""
    later = [phase for phase in plan.phases if phase is not plan.of(PhaseKind.PUSH)[0]]
    if plan.announces:
        return "who holds what decides about its messages, and is asked first"
    if isinstance(plan.mapping, Encoded):
        return "its parts are cut by the bytes of sums, which are not known before"
    if any(isinstance(phase.code, Fixed) for phase in plan.phases):
        return "all ranks agree on the scale of its integers before they send any"
    if any(phase.merge for phase in plan.phases) or any(phase.select for phase in later):
        return "what its ranks select of sums is counted before it is sent"
    if any(phase.code is not None and phase.format is not Format.DENSE for phase in plan.phases):
        return "what it encodes has an index, and how many values follow that is not known before"
    return ""
