"""Losses within a call: what its phases select and encode, and where this rank keeps what they lose.

A loss is added to this rank's residual of the next call at the units that it is of. The draws of a code depend on what
all ranks know, and so on nothing but the call, the phase, the part and whose contributions are encoded: equal sums are
rounded alike wherever they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch

from zenc.runtime.compression.supports import Draw, marks_of, warmed
from zenc.scheme.compression import Code, Selection, Warmup
from zenc.wire.constants import GOLDEN
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

    def marks(self, values: torch.Tensor, selections: Sequence[Selection], key: int) -> torch.Tensor | None:
        """Marks [units] of what ``selections`` take of ``values`` [units, width] float32; None for all of them."""
        chosen = warmed(selections, self.warmup, self.step)
        if not chosen:
            return None
        draw = Draw(self.step, key, self.rank, (range(len(values)),))
        return marks_of(values, chosen, draw, None)


@lru_cache(maxsize=4096)
def key_of(salt: int, phase: int, part: int, ranks: tuple[int, ...]) -> int:
    """64 bits for the draws of what is encoded of ``part`` in ``phase``, as the sum of contributions of ``ranks``."""
    key = salt
    for number in (phase, part, *ranks):
        key = mixed((key ^ number) + GOLDEN & ALL_BITS)
    return key


class Coder(Protocol):
    """Kernels that turn values into the bytes of a code, and back; addresses are integers.

    dtypes are f32, f16 and bf16. ``contributions``: how many ranks' contributions each value is a sum of.
    """

    def encode(
        self, code: Code, dtype: str, values: int, count: int, contributions: int, key: int, out: int, decoded: int
    ) -> int:
        """Write the bytes of ``values`` [count] to ``out``, and what they mean to ``decoded`` [count]; how many."""

    def decode(self, code: Code, dtype: str, data: int, size: int, count: int, contributions: int, out: int) -> None:
        """Write ``out`` [count], what ``size`` bytes of ``data`` mean. Raises SynchronisationError for others."""
