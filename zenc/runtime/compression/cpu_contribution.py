"""Contribution on CPUs by compiled kernels: two passes over a gradient and what earlier calls left of it.

The first accumulates and counts magnitudes, the second takes what is selected; between them a threshold is found from
the counts. Several selections, one after another, and parts that are not contiguous go through torch's operations
(``zenc.runtime.compression.contribution``), and mean the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from zenc.runtime.compression.contribution import Contributed
from zenc.runtime.compression.kernels import CompressionKernels, Taken, Threshold
from zenc.runtime.compression.residual_store import FlatState
from zenc.runtime.compression.supports import Draw
from zenc.runtime.layout import DTYPE_NAMES
from zenc.scheme.compression import (
    Above,
    Bisection,
    RandomEach,
    Reused,
    Sampled,
    Selection,
    Top,
    TopOfBlocks,
    TopOfParts,
    count_of,
)
from zenc.wire.constants import GOLDEN
from zenc.wire.mix import ALL_BITS, mixed

EVERYTHING = Threshold(0, 1 << 62)


def key_for(seed: int, salt: int, rank: int = 0) -> int:
    """64 bits for the draws of a selection with ``seed`` in the call of ``salt``; ``rank`` from 1 where they differ."""
    return mixed(mixed(seed ^ salt) + GOLDEN * rank & ALL_BITS)


def takes(selections: Sequence[Selection], draw: Draw) -> bool:
    """Whether the kernels do what ``selections`` say."""
    if len(selections) > 1:
        return False
    by_parts = any(isinstance(one, TopOfParts) for one in selections)
    return not by_parts or all(isinstance(part, range) for part in draw.parts)


@dataclass(slots=True)
class CpuContribution:
    """One contribution of ``gradient`` [units, width], accumulated in ``total`` [units, width] float32."""

    kernels: CompressionKernels
    gradient: torch.Tensor
    state: FlatState | None
    total: torch.Tensor
    velocity: torch.Tensor | None = None
    magnitudes: torch.Tensor | None = None

    @property
    def dtype(self) -> str:
        """As kernels name it."""
        return DTYPE_NAMES[self.gradient.dtype]

    def contribute(self, momentum: float | None, selections: Sequence[Selection], draw: Draw) -> Contributed:
        """As ``zenc.runtime.compression.contribution.contribute``."""
        everything = not selections and self.gradient.dtype == torch.float32 and momentum is None
        squares, finite = self.accumulate(momentum, self.gradient if everything else self.total)
        if everything:
            self.total.zero_()
            taken = Taken(len(self.gradient), 0.0)
        else:
            taken = self._take(selections[0], draw) if selections else self._take_all()
        if not finite:
            self.gradient[0, 0] = torch.nan
        return Contributed(squares, taken.squares, finite)

    def accumulate(self, momentum: float | None, out: torch.Tensor) -> tuple[float, bool]:
        """Write ``out`` [units, width] float32: the gradient and what is kept.

        Returns the sum of squares of the gradient, and whether all that is written is finite.
        """
        state, n = self.state, self.gradient.numel()
        velocity = (0, 0)
        residual = 0 if state is None or state.now.residual is None else state.now.residual.data_ptr()
        if momentum is not None and state is not None:
            self.velocity = state.room("velocity")
            before = state.now.velocity
            velocity = (0 if before is None else before.data_ptr(), self.velocity.data_ptr())
        into = out.data_ptr(), *velocity, momentum or 0.0
        found = self.kernels.accumulate(self.dtype, n, self.gradient.data_ptr(), residual, *into)
        return found.squares, found.finite

    def _take_all(self) -> Taken:
        """Contribute everything, but for what rounding to the gradient's dtype loses; velocities go on."""
        at = self.total.data_ptr(), EVERYTHING, self.gradient.data_ptr()
        return self.kernels.take(self.dtype, self.gradient.numel(), *at)

    def _take(self, selection: Selection, draw: Draw) -> Taken:
        units, width = self.gradient.shape
        if width > 1:
            self.magnitudes = torch.empty(units, dtype=torch.float32)
            self.kernels.row_magnitudes(self.total.data_ptr(), units, width, self.magnitudes.data_ptr())
        velocity = 0 if self.velocity is None else self.velocity.data_ptr()
        left, into = self.total.data_ptr(), (self.gradient.data_ptr(), velocity, width)
        rows = 0 if self.magnitudes is None else self.magnitudes.data_ptr()
        match selection:
            case Top(density):
                return self._taken(0, units, self._threshold(selection, count_of(density, units), draw))
            case TopOfParts(density):
                parts = [part for part in draw.parts if isinstance(part, range) and len(part)]
                found = [
                    self._taken(part.start, len(part), self._exact(part.start, len(part), count_of(density, len(part))))
                    for part in parts
                ]
                return Taken(sum(each.count for each in found), sum(each.squares for each in found))
            case TopOfBlocks(density, block):
                k = count_of(density, block)
                return self.kernels.take_of_blocks(self.dtype, units, left, block, k, *into, rows)
            case Above(threshold):
                return self._taken(0, units, Threshold.of(threshold))
            case RandomEach(density, seed):
                key = key_for(seed, draw.seed, draw.rank + 1)
                return self.kernels.take_random(self.dtype, units, left, density, key, *into)
        raise AssertionError(f"{selection} is no support selection")

    def _taken(self, first: int, units: int, threshold: Threshold) -> Taken:
        """Take of ``units`` from ``first`` on."""
        width, size = self.gradient.shape[1], self.gradient.element_size()
        velocity = 0 if self.velocity is None else self.velocity.data_ptr() + 4 * first * width
        rows = 0 if self.magnitudes is None else self.magnitudes.data_ptr() + 4 * first
        at = self.total.data_ptr() + 4 * first * width, threshold, self.gradient.data_ptr() + size * first * width
        return self.kernels.take(self.dtype, units, *at, velocity, width, rows)

    def _exact(self, first: int, units: int, k: int) -> Threshold:
        return self.kernels.exact_threshold(self._by + 4 * first, units, k)

    @property
    def _by(self) -> int:
        """The address of what thresholds are of: values, or the magnitudes of rows."""
        return (self.total if self.magnitudes is None else self.magnitudes).data_ptr()

    def _threshold(self, selection: Top, k: int, draw: Draw) -> Threshold:
        units = len(self.gradient)
        match selection.by:
            case Sampled(share):
                drawn = min(units, max(1, round(share * units)))
                return self.kernels.sampled_threshold(self._by, units, k, drawn, key_for(0, draw.seed))
            case Bisection(steps):
                return self.kernels.bisected_threshold(self._by, units, k, steps)
            case Reused(steps):
                known = self.state.threshold if self.state else None
                if known is not None and draw.step % steps and draw.step - known[1] < steps:
                    return Threshold(known[0], 1 << 62)
                found = self._exact(0, units, k)
                if self.state is not None:
                    self.state.threshold = found.magnitude, draw.step
                return found
        return self._exact(0, units, k)
