"""Contribution on GPUs by compiled kernels: the same as ``zenc.runtime.lossy.cpu_contribution``, bit for bit.

    guess by a sample which units to list              64 bytes a unit of a sample of 4,096
    accumulate, and list it                            12 bytes a float32, with momentum 20
    find the threshold in the list, and take units      64 to 96 bytes a unit that is taken, or 8 a float32

What is taken has bits where the caller ``picks`` by them, and else everything else becomes +0. The host waits once, at
the end. Several selections mark units one after another, and marked units are taken at last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from zenc.runtime.call.layout import DTYPE_NAMES
from zenc.runtime.lossy import parameters
from zenc.runtime.lossy.contribution import Contributed
from zenc.runtime.lossy.gpu_kernels import LARGEST_BLOCK, GpuCompression, OpenSelection, Selected, searches_of
from zenc.runtime.lossy.parameters import FROM, OF_BLOCKS, SAMPLED, TOP, UnitChoice
from zenc.runtime.lossy.residual_store import FlatState
from zenc.runtime.lossy.supports import Draw, choice_of, remember_threshold
from zenc.scheme.compression import Reused, Selection, Top, TopOfParts, count_of

Parts = list[tuple[int, int, int]]
"""The first unit in the order of all, the units, and the number to be taken, of each part."""
MOST_LISTED = 1 / 20
"""Largest share of units that are likely to have room in a list, which is for 1 in 16 (``zenc/compress/search.h``)."""


@dataclass(slots=True)
class GpuContribution:
    """A contribution of ``gradient`` [units, width], accumulated in ``total`` [units, width] float32."""

    kernels: GpuCompression
    gradient: torch.Tensor
    state: FlatState | None
    total: torch.Tensor
    clears: bool = True
    """True where velocities of units that are taken become 0."""
    units: int = 0
    """The units that densities are shares of, where ``gradient`` has the rows of some of them; 0: it has all."""
    picks: bool = False
    """True where the caller takes bits of the contribution: the gradient is undefined beside them."""
    leaves: bool = False
    """True where the call itself adds the residual, if everything is contributed, and nothing is to be rounded."""
    before: torch.Tensor | None = None
    """The residual, float32, that the call adds to the gradient."""
    undefined: bool = False
    """True where nothing is left, and ``total`` is undefined."""
    taken: torch.Tensor | None = None
    """The bits [units], in bytes, of contributed values that are not 0; None: the gradient has all of it, and +0."""

    def contribute(self, momentum: float | None, selections: Sequence[Selection], draw: Draw) -> Contributed:
        """Leave the contributed part in ``gradient``, and the rest in ``total``; a velocity in the next state.

        The caller sends values that are not finite.
        """
        units, width = self.gradient.shape
        if not units * width:
            return Contributed(0.0, 0.0, True)
        if not selections and self.gradient.dtype == torch.float32 and momentum is None:
            return self._everything()
        chosen = [self._choice(one, draw) for one in selections]
        parts = [self._parts(one, choice, draw) for one, choice in zip(selections, chosen, strict=True)]
        most, several = max([1, *map(len, parts)]), len(selections) > 1
        open = self.kernels.selection(DTYPE_NAMES[self.gradient.dtype], units, width, most, several)
        if not self.clears:
            open.step("keep_velocities")
        alone = len(selections) == 1 and width == 1 and self._order(selections[0], draw) is None
        if alone and (parts[0] or (chosen[0] is not None and chosen[0].kind in (SAMPLED, FROM))):
            return self._alone(open, momentum, selections[0], chosen[0], parts[0], draw)
        self._add(open, momentum, self.total)
        open.accumulate()
        if several or (width > 1 and selections):
            open.step("look_at", self.total.data_ptr(), 0, open.room(4 * units))
        for selection, choice, of_parts in zip(selections, chosen, parts, strict=True):
            order = self._order(selection, draw)
            _take(open, choice, of_parts, order, 0 if several else self.gradient.data_ptr())
            if isinstance(selection, Top) and isinstance(selection.by, Reused):
                open.step("keep_threshold")
        if len(selections) != 1:
            open.step("take_marked" if several else "take_all", self.gradient.data_ptr())
        found = open.close()
        for selection in selections:
            remember_threshold(selection, int(found.known), draw, self.state, units, None)
        return _contributed(found)

    def _everything(self) -> Contributed:
        self.undefined = True
        if self.leaves and self.state is not None:
            self.before = self.state.now.added
            norm = float(torch.linalg.vector_norm(self.gradient, dtype=torch.float64))
            return Contributed(norm**2, 0.0, True)
        open = self.kernels.selection(DTYPE_NAMES[self.gradient.dtype], *self.gradient.shape)
        self._add(open, None, self.gradient)
        open.accumulate()
        return _contributed(open.close())

    def _alone(
        self,
        open: OpenSelection,
        momentum: float | None,
        selection: Selection,
        choice: UnitChoice | None,
        parts: Parts,
        draw: Draw,
    ) -> Contributed:
        """Take single values in the pass that accumulates, or list there what may be taken."""
        units, into = len(self.gradient), self.gradient.data_ptr()
        many = choice is not None and choice.kind == SAMPLED and choice.a > units * MOST_LISTED
        lists = bool(parts) or (self.picks and not many)
        if self.picks and lists:
            self.taken = self.kernels.memory(-(-units // 64) * 8)
        self._add(open, momentum, self.total, self.taken)
        if parts:
            open.accumulate(searches_of(parts))
            open.take_top(searches_of(parts), True, None, into)
        elif choice is not None and choice.kind == SAMPLED:
            open.accumulate_sampled(choice.a, choice.b, choice.key, 0 if lists else into)
        elif choice is not None:
            open.step("accumulate_from", choice.a, 0 if lists else into)
        if lists and not parts:
            open.step("take_listed", into)
        if isinstance(selection, Top) and isinstance(selection.by, Reused):
            open.step("keep_threshold")
        found = open.close()
        sent = self.gradient
        remember_threshold(
            *(selection, int(found.known), draw, self.state, units),
            lambda: int(sent.count_nonzero()) if self.taken is None else int(found.number),
        )
        return _contributed(found)

    def accumulate(self, momentum: float | None, out: torch.Tensor) -> tuple[float, bool]:
        """Write ``out`` [units, width] float32: the gradient plus the residual.

        Returns the sum of squares of the gradient, and whether all written values are finite.
        """
        if not out.numel():
            return 0.0, True
        open = self.kernels.selection(DTYPE_NAMES[self.gradient.dtype], *self.gradient.shape)
        self._add(open, momentum, out)
        open.accumulate()
        found = open.close()
        return found.squares, found.finite

    def _add(
        self, open: OpenSelection, momentum: float | None, out: torch.Tensor, bits: torch.Tensor | None = None
    ) -> None:
        state = self.state
        residual = 0 if state is None or state.now.added is None else state.now.added.data_ptr()
        velocity = (0, 0.0, 0)
        if momentum is not None and state is not None:
            before = state.now.velocity
            velocity = (0 if before is None else before.data_ptr(), momentum, state.room("velocity").data_ptr())
        into = *velocity, 0 if bits is None else bits.data_ptr()
        open.step("add", self.gradient.data_ptr(), residual, out.data_ptr(), *into)

    def _choice(self, selection: Selection, draw: Draw) -> UnitChoice | None:
        units = self.units or len(self.gradient)
        return None if isinstance(selection, TopOfParts) else choice_of(selection, units, draw, self.state)

    def _parts(self, selection: Selection, choice: UnitChoice | None, draw: Draw) -> Parts:
        """Return the parts of an exact search; an empty list where there is another way."""
        units = len(self.gradient)
        if isinstance(selection, TopOfParts):
            sizes = [len(part) for part in draw.parts]
            firsts = accumulate([0, *sizes[:-1]])  # parts follow each other, or their units do in the order
            density = selection.density
            return [(first, n, count_of(density, n) if n else 0) for first, n in zip(firsts, sizes, strict=True)]
        if choice is not None and choice.kind == TOP:
            return [(0, units, min(units, choice.a))]
        if choice is not None and choice.kind == OF_BLOCKS and choice.b > LARGEST_BLOCK:
            k, block = choice.a, choice.b
            lengths = [(first, min(block, units - first)) for first in range(0, units, block)]
            return [(first, n, k if n == block else max(1, k * n // block)) for first, n in lengths]
        return []

    def _order(self, selection: Selection, draw: Draw) -> torch.Tensor | None:
        return self.kernels.order(draw.parts, self.gradient.device) if isinstance(selection, TopOfParts) else None


def _take(open: OpenSelection, choice: UnitChoice | None, parts: Parts, order: torch.Tensor | None, into: int) -> None:
    """Take units of ``parts``, or by a choice without an exact search."""
    if parts or choice is None:
        return open.take_top(searches_of(parts), False, order, into)
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
    return Contributed(found.squares, max(0.0, found.left), found.finite)
