"""Capacity mode on GPUs: how much room there is for what nobody has counted yet (docs/adr/0024-capacity-mode.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from zenc.errors import Diagnostic, ZencError
from zenc.plan.ir import Plan

Shares: TypeAlias = float | tuple[float, float]
"""As users give it: ``FixedCapacity.own``, or both."""


@dataclass(frozen=True, slots=True)
class FixedCapacity:
    """Of the units of each part the gradient of a rank occupies a share of ``own`` at most, and any sum ``total``."""

    own: float
    total: float

    def __str__(self) -> str:
        return f"capacity {self.own:g}, {self.total:g}"


def capacity_of(given: Shares | None, plan: Plan, size: int) -> FixedCapacity | None:
    """The capacities by ``given`` for ``plan`` among ``size`` ranks. ZencError ``bad-capacity``, ``no-capacity-mode``.

    Without a share for sums they have what all ranks have together.
    """
    if given is None:
        return None
    if plan.announces:
        message = f"{plan.scheme} has no capacity mode: who holds what decides about its messages, and is asked first"
        raise ZencError(Diagnostic("no-capacity-mode", message, help="leave out capacity="))
    own, total = given if isinstance(given, tuple) else (given, min(1.0, given * size))
    if not 0 < own <= total <= 1:
        message = f"capacity={given!r} is no share of the units"
        help = "give the greatest density of a rank's gradient, above 0 and up to 1, or a pair: with that of the sum"
        raise ZencError(Diagnostic("bad-capacity", message, help=help))
    return FixedCapacity(own, total)
