"""Backend interface: prepare(layout) -> start(header) -> reduce(tensor) -> Reduction.

A backend runs one plan on one device. What it prepares serves all calls over tensors of one layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

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
    """A call of one rank: the header first, then the tensor."""

    @property
    def stats(self) -> dict[str, PhaseStats]:
        """By phase, in order."""

    def reduce(self, tensor: torch.Tensor, divisor: int) -> Reduction:
        """Sum ``tensor``, of any shape, over all ranks, each value divided by ``divisor`` first; dense in place."""


class Prepared(Protocol):
    """A backend, ready for tensors of one layout."""

    def start(self, header: CallHeader) -> Call:
        """A call whose messages carry ``header``."""


class Backend(Protocol):
    """A plan on one device. ``code``: the library or the GPU that runs it, for logs."""

    code: str

    def prepare(self, layout: Layout) -> Prepared:
        """Be ready for tensors of ``layout``; raises TensorError for one that is too large."""
