"""Contribution on GPUs by compiled kernels: what ``zenc.runtime.compression.cpu_contribution`` does, bit for bit.

    accumulate, and the first digit of the threshold   12 bytes a float32, with momentum 20
    take what is known to be selected                   8
    find the other digits, take the rest                of the units in the threshold's bin

The host waits once, at the end. Several selections mark units one after another, and what is marked is taken at last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from zenc.runtime.compression.contribution import Contributed
from zenc.runtime.compression.cpu_contribution import key_for
from zenc.runtime.compression.gpu_kernels import LARGEST_BLOCK, GpuCompression, OpenSelection, Selected, searches_of
from zenc.runtime.compression.kernels import Threshold
from zenc.runtime.compression.residual_store import FlatState
from zenc.runtime.compression.supports import Draw
from zenc.runtime.layout import DTYPE_NAMES
from zenc.scheme.compression import (
    Above,
    Bisection,
    Histogram,
    RandomEach,
    Reused,
    Sampled,
    Selection,
    Top,
    TopOfBlocks,
    TopOfParts,
    count_of,
)

Parts = list[tuple[int, int, int]]
"""First unit in the order of all, units, and how many are taken, of each part."""


@dataclass(slots=True)
class GpuContribution:
    """One contribution of ``gradient`` [units, width], accumulated in ``total`` [units, width] float32."""

    kernels: GpuCompression
    gradient: torch.Tensor
    state: FlatState | None
    total: torch.Tensor

    def contribute(self, momentum: float | None, selections: Sequence[Selection], draw: Draw) -> Contributed:
        """Leave in ``gradient`` what is contributed of it, and the rest in ``total``; a velocity in the next state.

        The caller sends what is not finite.
        """
        units, width = self.gradient.shape
        if not units * width:
            return Contributed(0.0, 0.0, True)
        parts, several = [self._parts(one, draw) for one in selections], len(selections) > 1
        most = max([1, *(len(each) for each in parts)])
        open = self.kernels.selection(DTYPE_NAMES[self.gradient.dtype], units, width, most, several)
        alone = selections[0] if len(selections) == 1 and width == 1 else None
        fused = parts[0] if alone is not None and self._order(alone, draw) is None else []
        everything = not selections and self.gradient.dtype == torch.float32 and momentum is None
        self._accumulate(open, momentum, self.gradient if everything else self.total, fused)
        if everything:
            self.total.zero_()
            return _contributed(open.close())
        if several or (width > 1 and selections):
            open.step("look_at", self.total.data_ptr(), 0, open.room(4 * units))
        into = self.gradient.data_ptr()
        for selection, of_parts in zip(selections, parts, strict=True):
            self._take(open, selection, draw, of_parts, bool(fused), 0 if several else into)
            if isinstance(selection, Top) and isinstance(selection.by, Reused):
                open.step("keep_threshold")
        if several:
            open.step("take_marked", into)
        if not selections:
            open.step("take_all", into)
        found = open.close()
        self._remember(selections, draw, found)
        return _contributed(found)

    def accumulate(self, momentum: float | None, out: torch.Tensor) -> tuple[float, bool]:
        """Write ``out`` [units, width] float32: the gradient and what is kept.

        Returns the sum of squares of the gradient, and whether all that is written is finite.
        """
        if not out.numel():
            return 0.0, True
        open = self.kernels.selection(DTYPE_NAMES[self.gradient.dtype], *self.gradient.shape)
        self._accumulate(open, momentum, out, [])
        found = open.close()
        return found.squares, found.finite

    def _accumulate(self, open: OpenSelection, momentum: float | None, out: torch.Tensor, parts: Parts) -> None:
        state = self.state
        residual = 0 if state is None or state.now.residual is None else state.now.residual.data_ptr()
        velocity = (0, 0.0, 0)
        if momentum is not None and state is not None:
            before = state.now.velocity
            velocity = (0 if before is None else before.data_ptr(), momentum, state.room("velocity").data_ptr())
        searches = searches_of(parts) if parts else None
        open.accumulate(self.gradient.data_ptr(), residual, out.data_ptr(), *velocity, searches)

    def _parts(self, selection: Selection, draw: Draw) -> Parts:
        """The parts of an exact search; none where there is another way."""
        units = len(self.gradient)
        match selection:
            case Top(density, Histogram() | Reused()) if self._known(selection, draw) is None:
                return [(0, units, count_of(density, units))]
            case TopOfParts(density):
                sizes = [len(part) for part in draw.parts]
                firsts = accumulate([0, *sizes[:-1]])  # parts follow each other, or their units do in the order
                return [(first, n, count_of(density, n) if n else 0) for first, n in zip(firsts, sizes, strict=True)]
            case TopOfBlocks(density, block) if block > LARGEST_BLOCK:
                k = count_of(density, block)
                lengths = [(first, min(block, units - first)) for first in range(0, units, block)]
                return [(first, n, k if n == block else max(1, k * n // block)) for first, n in lengths]
        return []

    def _order(self, selection: Selection, draw: Draw) -> torch.Tensor | None:
        return self.kernels.order(draw.parts, self.gradient.device) if isinstance(selection, TopOfParts) else None

    def _known(self, selection: Selection, draw: Draw) -> int | None:
        """The threshold of an earlier call, where ``selection`` uses it again."""
        known = self.state.threshold if self.state else None
        if not isinstance(selection, Top) or not isinstance(selection.by, Reused) or known is None:
            return None
        steps = selection.by.steps
        return known[0] if draw.step % steps and draw.step - known[1] < steps else None

    def _take(
        self, open: OpenSelection, selection: Selection, draw: Draw, parts: Parts, begun: bool, into: int
    ) -> None:
        units = len(self.gradient)
        if parts:
            return open.take_top(searches_of(parts), begun, self._order(selection, draw), into)
        match selection:
            case Top(density, Sampled(share)):
                drawn = min(units, max(1, round(share * units)))
                return open.take_sampled(count_of(density, units), drawn, key_for(0, draw.seed), into)
            case Top(density, Bisection(steps)):
                return open.step("take_bisected", count_of(density, units), steps, into)
            case TopOfBlocks(density, block):
                return open.step("take_of_blocks", block, count_of(density, block), into)
            case Above(threshold):
                return open.step("take_from", Threshold.of(threshold).magnitude, into)
            case RandomEach(density, seed):
                key = key_for(seed, draw.seed, draw.rank + 1)
                return open.step("take_random", key, round(density * 2**31), into)
        known = self._known(selection, draw)
        assert known is not None, f"{selection} is no support selection"
        open.step("take_from", known, into)

    def _remember(self, selections: Sequence[Selection], draw: Draw, found: Selected) -> None:
        """Keep the threshold that the next calls use again."""
        for selection in selections:
            reuses = isinstance(selection, Top) and isinstance(selection.by, Reused)
            if reuses and self.state is not None and self._known(selection, draw) is None:
                self.state.threshold = int(found.known), draw.step


def _contributed(found: Selected) -> Contributed:
    return Contributed(found.squares, found.left, found.finite)
