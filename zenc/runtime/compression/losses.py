"""Losses within a call: what its phases select and encode, and where this rank keeps what they lose.

A loss is added to this rank's residual of the next call at the units that it is of. The draws of a code depend on what
all ranks know, and so on nothing but the call, the phase, the part and whose contributions are encoded: equal sums are
rounded alike wherever they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch

from zenc.runtime.compression.supports import Draw, warmed
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
    averages: int = 0
    """The ranks over which the sum is averaged, and looked at, before it is expanded; 0: both is left to the caller."""
    contribute: Callable[[int, int], None] | None = None
    """Function that makes of the units from ``first`` to before ``end`` of the tensor what is contributed of them; once
    for each unit, before it is used. None: all are."""
    finite: bool | None = None
    """True of a finite sum; None while nobody has looked."""
    ends: Ends = ()
    """The ends of parts in units, under ``balanced by encoded``."""
    part_bytes: list[int] = field(default_factory=list)
    """Of the encoded sum of each part, when the call has ended, where there are ``ends``; the same on all ranks."""

    def chosen(self, selections: Sequence[Selection]) -> tuple[Selection, ...]:
        """``selections`` as they are in this call; none where everything is kept in the sum."""
        return () if self.alone else warmed(selections, self.warmup, self.step)

    def draw(self, units: int, key: int) -> Draw:
        """The facts of a choice among the ``units`` of one part."""
        return Draw(self.step, key, self.rank, (range(units),))


@lru_cache(maxsize=4096)
def key_of(salt: int, seed: int, phase: int, part: int, ranks: tuple[int, ...]) -> int:
    """64 bits for the draws of what is made of ``part`` in ``phase``, of the sum of contributions of ``ranks``."""
    key = salt
    for number in (seed, phase, part, *ranks):
        key = mixed((key ^ number) + GOLDEN & ALL_BITS)
    return key
