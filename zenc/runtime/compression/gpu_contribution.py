"""Contribution on GPUs by compiled kernels: the same as ``zenc.runtime.compression.cpu_contribution``, bit for bit.

    accumulate, and the first digit of the threshold   12 bytes a float32, with momentum 20
    take units known to be selected                   8
    find the other digits, take the rest                of the units in the threshold's bin

The host waits once, at the end. Several selections mark units one after another, and marked units are taken at last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from zenc.runtime.call.layout import DTYPE_NAMES
from zenc.runtime.compression import parameters
from zenc.runtime.compression.contribution import Contributed
from zenc.runtime.compression.gpu_kernels import LARGEST_BLOCK, GpuCompression, OpenSelection, Selected, searches_of
from zenc.runtime.compression.parameters import OF_BLOCKS, TOP, UnitChoice
from zenc.runtime.compression.residual_store import FlatState
from zenc.runtime.compression.supports import Draw, choice_of, remember_threshold
from zenc.scheme.compression import Reused, Selection, Top, TopOfParts, count_of

Parts = list[tuple[int, int, int]]
"""The first unit in the order of all, the units, and the number to be taken, of each part."""


@dataclass(slots=True)
class GpuContribution:
    """A contribution of ``gradient`` [units, width], accumulated in ``total`` [units, width] float32."""

    kernels: GpuCompression
    gradient: torch.Tensor
    state: FlatState | None
    total: torch.Tensor
    clears: bool = True
    """True where velocities of units that are taken become 0."""

    def contribute(self, momentum: float | None, selections: Sequence[Selection], draw: Draw) -> Contributed:
        """Leave the contributed part in ``gradient``, and the rest in ``total``; a velocity in the next state.

        The caller sends values that are not finite.
        """
        units, width = self.gradient.shape
        if not units * width:
            return Contributed(0.0, 0.0, True)
        chosen = [self._choice(one, draw) for one in selections]
        parts = [self._parts(one, choice, draw) for one, choice in zip(selections, chosen, strict=True)]
        most, several = max([1, *map(len, parts)]), len(selections) > 1
        open = self.kernels.selection(DTYPE_NAMES[self.gradient.dtype], units, width, most, several)
        alone = selections[0] if len(selections) == 1 and width == 1 else None
        fused = parts[0] if alone is not None and self._order(alone, draw) is None else []
        everything = not selections and self.gradient.dtype == torch.float32 and momentum is None
        self._accumulate(open, momentum, self.gradient if everything else self.total, fused)
        if everything:
            self.total.zero_()
            return _contributed(open.close())
        if not self.clears:
            open.step("keep_velocities")
        if several or (width > 1 and selections):
            open.step("look_at", self.total.data_ptr(), 0, open.room(4 * units))
        for selection, choice, of_parts in zip(selections, chosen, parts, strict=True):
            order = self._order(selection, draw)
            _take(open, choice, of_parts, bool(fused), order, 0 if several else self.gradient.data_ptr())
            if isinstance(selection, Top) and isinstance(selection.by, Reused):
                open.step("keep_threshold")
        if len(selections) != 1:
            open.step("take_marked" if several else "take_all", self.gradient.data_ptr())
        found = open.close()
        taken = self.gradient if len(selections) == 1 and width == 1 else None
        for selection in selections:
            remember_threshold(selection, int(found.known), draw, self.state, taken)
        return _contributed(found)

    def accumulate(self, momentum: float | None, out: torch.Tensor) -> tuple[float, bool]:
        """Write ``out`` [units, width] float32: the gradient plus the residual.

        Returns the sum of squares of the gradient, and whether all written values are finite.
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

    def _choice(self, selection: Selection, draw: Draw) -> UnitChoice | None:
        return None if isinstance(selection, TopOfParts) else choice_of(selection, len(self.gradient), draw, self.state)

    def _parts(self, selection: Selection, choice: UnitChoice | None, draw: Draw) -> Parts:
        """Return the parts of an exact search; an empty list where there is another way."""
        units = len(self.gradient)
        if isinstance(selection, TopOfParts):
            sizes = [len(part) for part in draw.parts]
            firsts = accumulate([0, *sizes[:-1]])  # parts follow each other, or their units do in the order
            density = selection.density
            return [(first, n, count_of(density, n) if n else 0) for first, n in zip(firsts, sizes, strict=True)]
        if choice is not None and choice.kind == TOP:
            return [(0, units, choice.a)]
        if choice is not None and choice.kind == OF_BLOCKS and choice.b > LARGEST_BLOCK:
            k, block = choice.a, choice.b
            lengths = [(first, min(block, units - first)) for first in range(0, units, block)]
            return [(first, n, k if n == block else max(1, k * n // block)) for first, n in lengths]
        return []

    def _order(self, selection: Selection, draw: Draw) -> torch.Tensor | None:
        return self.kernels.order(draw.parts, self.gradient.device) if isinstance(selection, TopOfParts) else None


def _take(
    open: OpenSelection, choice: UnitChoice | None, parts: Parts, begun: bool, order: torch.Tensor | None, into: int
) -> None:
    """Take units of ``parts``, whose search may have ``begun``, or by a choice without an exact search."""
    if parts or choice is None:
        return open.take_top(searches_of(parts), begun, order, into)
    match choice.kind:
        case parameters.SAMPLED:
            open.take_sampled(choice.a, choice.b, choice.key, into)
        case parameters.BISECTED:
            open.step("take_bisected", choice.a, choice.b, into)
        case parameters.OF_BLOCKS:
            open.step("take_of_blocks", choice.b, choice.a, into)
        case parameters.FROM:
            open.step("take_from", choice.a, into)
        case parameters.AT_RANDOM:
            open.step("take_random", choice.key, choice.a, into)


def _contributed(found: Selected) -> Contributed:
    return Contributed(found.squares, found.left, found.finite)
