"""What a collective asks of the device that its tensor is on.

prepare(layout) -> open(envelope) -> Call -> reduce(tensor) -> Reduction
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch

from zenc.runtime.cpu.headers import CallHeader
from zenc.runtime.layout import Layout
from zenc.runtime.stats import PhaseStats


@dataclass(slots=True)  # not frozen: one is made in every call
class Reduction:
    """The sum, in the layout of the input, and what was counted on the way: occupied units of each part, seconds.

    ``made_again``: there was not room for all in capacity mode. ``waited``: peer -> seconds of waiting for it; None
    where that is not measured.
    """

    tensor: torch.Tensor
    counts_in: list[int]
    counts_out: list[int]
    seconds_pack: float
    seconds_expand: float
    made_again: bool = False
    waited: dict[int, float] | None = None


class Call(Protocol):
    """One call of one rank."""

    @property
    def stats(self) -> dict[str, PhaseStats]:
        """By phase, in order."""

    def reduce(self, tensor: torch.Tensor, divisor: int) -> Reduction:
        """Sum ``tensor``, each value divided by ``divisor`` first, over all ranks."""


Opener: TypeAlias = Callable[[CallHeader], Call]
Stage: TypeAlias = Callable[[Layout], Opener]
