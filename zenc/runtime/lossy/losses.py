"""Losses within a call: the selections and codes of its phases, and this rank's residual for their losses.

A loss is added to this rank's residual of the next call at its units. The draws of a code depend on facts that all
ranks know, and so only on the call, the phase, the part and the contributors of the encoded piece: equal sums are
rounded alike wherever they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch

from zenc.runtime.lossy.supports import Draw, warmed
from zenc.scheme.compression import Selection, Warmup
from zenc.wire.constants import GOLDEN
from zenc.wire.cuts import Ends
from zenc.wire.mix import ALL_BITS, mixed


@dataclass(slots=True)
class CallLosses:
    """The losses of one call of rank ``rank``, after ``step`` calls; ``salt`` is the same on all ranks.

    ``residual`` [elements] float32 is that of the next call; None where losses are not kept.
    """

    salt: int
    step: int
    rank: int
    warmup: Warmup | None
    residual: torch.Tensor | None
    alone: bool = False
    """True where there are no other ranks, so that nothing need be left out."""
    taken: torch.Tensor | None = None
    """Bits [units], in bytes, of the contribution's values that are not 0: the tensor has anything beside them. None:
    it has +0."""
    before: torch.Tensor | None = None
    """Values [elements] float32 that the tensor is to have more; None: it is as it is."""
    undefined: bool = False
    """True where ``residual`` means zeros, and has anything."""
    averages: int = 0
    """The number of ranks to average over, and to check for finite values, before the sum is expanded; 0: the caller
    does both."""
    contribute: Callable[[int, int], None] | None = None
    """Function that contributes the units from ``first`` to before ``end`` of the tensor; called once for each unit,
    before it is used. None: all units are contributed."""
    finite: bool | None = None
    """True for a finite sum; None before anybody has checked."""
    ends: Ends = ()
    """The ends of parts in units, under ``balanced by encoded``."""
    part_bytes: list[int] = field(default_factory=list)
    """The bytes of each part's encoded sum, when the call has ended, where there are ``ends``; the same on all ranks.
    """

    def chosen(self, selections: Sequence[Selection]) -> tuple[Selection, ...]:
        """Return the ``selections`` of this call; an empty tuple where everything is kept in the sum."""
        return () if self.alone else warmed(selections, self.warmup, self.step)

    def draw(self, units: int, key: int) -> Draw:
        """Return the facts of a choice among the ``units`` of one part: the same on all ranks that have its sum."""
        return Draw(self.step, key, 0, (range(units),))


@lru_cache(maxsize=4096)
def key_of(salt: int, seed: int, phase: int, part: int, ranks: tuple[int, ...]) -> int:
    """Return 64 bits for the draws on ``part`` in ``phase``, for the sum of contributions of ``ranks``."""
    key = salt
    for number in (seed, phase, part, *ranks):
        key = mixed((key ^ number) + GOLDEN & ALL_BITS)
    return key
