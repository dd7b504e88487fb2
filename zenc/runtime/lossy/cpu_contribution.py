"""Contribution on CPUs by compiled kernels: one pass over a gradient and the residual of earlier calls.

Selected single values are cut out in the pass that accumulates. Rows, several selections one after another, and parts
that are not contiguous have a magnitude and a mark of each unit, and a second pass that takes the marked ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from zenc.runtime.call.layout import DTYPE_NAMES
from zenc.runtime.lossy.contribution import Contributed
from zenc.runtime.lossy.kernels import CompressionKernels, Taken, Threshold
from zenc.runtime.lossy.low_rank import LowRankMap
from zenc.runtime.lossy.parameters import TOP, UnitChoice
from zenc.runtime.lossy.residual_store import FlatState
from zenc.runtime.lossy.supports import Draw, choice_of, remember_threshold
from zenc.scheme.compression import Selection, TopOfParts, count_of

EVERYTHING = Threshold(0, 1 << 62)


@dataclass(slots=True)
class CpuContribution:
    """A contribution of ``gradient`` [units, width], accumulated in ``total`` [units, width] float32."""

    kernels: CompressionKernels
    gradient: torch.Tensor
    state: FlatState | None
    total: torch.Tensor
    velocity: torch.Tensor | None = None
    clears: bool = True
    """True where velocities of units that are taken become 0."""

    @property
    def dtype(self) -> str:
        """The dtype as kernels name it."""
        return DTYPE_NAMES[self.gradient.dtype]

    def contribute(self, momentum: float | None, selections: Sequence[Selection], draw: Draw) -> Contributed:
        """Leave the contributed part in ``gradient``, and the rest in ``total``; a velocity in the next state."""
        cuts = self._cuts(selections, draw)
        if cuts is not None:
            squares, finite, taken = self._cut(momentum, cuts)
            sent, units = self.gradient, len(self.gradient)
            remember_threshold(
                selections[0], taken.threshold, draw, self.state, units, lambda: int(sent.count_nonzero())
            )
        else:
            everything = not selections and self.gradient.dtype == torch.float32 and momentum is None
            squares, finite = self.accumulate(momentum, self.gradient if everything else self.total)
            if everything:
                self.total.zero_()
                taken = Taken(len(self.gradient), 0.0)
            else:
                taken = self._take_marked(selections, draw) if selections else self._take_all()
        if not finite:
            self.gradient[0, 0] = torch.nan
        return Contributed(squares, taken.squares, finite)

    def contribute_part(self, found: Contributed, first: int, end: int) -> None:
        """Contribute everything of the float32 units from ``first`` to before ``end``, and count it in ``found``."""
        gradient, residual, *_ = self._sources(None)
        width, part = self.gradient.shape[1], self.gradient[first:end]
        at = 4 * first * width
        of = gradient + at, _moved(residual, at), gradient + at, 0, 0, 0.0
        here = self.kernels.accumulate(self.dtype, part.numel(), *of)
        if not residual:
            part.add_(0.0)  # zeros become +0
        self.total[first:end].zero_()
        found.gradient += here.squares
        if not here.finite:
            found.finite = False
            part[0, 0] = torch.nan

    def accumulate(self, momentum: float | None, out: torch.Tensor) -> tuple[float, bool]:
        """Write ``out`` [units, width] float32: the gradient plus the residual.

        Returns the sum of squares of the gradient, and whether all written values are finite.
        """
        gradient, residual, velocity, velocity_out = self._sources(momentum)
        into = gradient, residual, out.data_ptr(), velocity, velocity_out, momentum or 0.0
        found = self.kernels.accumulate(self.dtype, self.gradient.numel(), *into)
        return found.squares, found.finite

    def take_factors(self, of: LowRankMap) -> tuple[torch.Tensor, Contributed]:
        """Return the short tensor of ``of``, and leave the rest in ``total``."""
        gradient, residual, *_ = self._sources(None)
        short = torch.empty(of.numel, dtype=torch.float32, device="cpu")
        into = self.total.data_ptr(), short.data_ptr()
        found, rest = self.kernels.take_factors(self.dtype, of.numbers, gradient, residual, *into)
        return short, Contributed(found.squares, rest, found.finite)

    def _sources(self, momentum: float | None) -> tuple[int, int, int, int]:
        """Return the addresses of the gradient, the residual, the velocity and the next velocity."""
        state, gradient = self.state, self.gradient.data_ptr()
        if state is None:
            return gradient, 0, 0, 0
        residual = _address(state.now.added)
        if momentum is None:
            return gradient, residual, 0, 0
        self.velocity = state.room("velocity")
        return gradient, residual, _address(state.now.velocity), self.velocity.data_ptr()

    def _take_all(self) -> Taken:
        """Contribute everything, but for the loss of rounding to the gradient's dtype; velocities go on."""
        at = self.total.data_ptr(), EVERYTHING, self.gradient.data_ptr()
        return self.kernels.take(self.dtype, self.gradient.numel(), *at)

    def _cuts(self, selections: Sequence[Selection], draw: Draw) -> list[tuple[range, UnitChoice]] | None:
        """Return the ranges of units that are each cut in one pass, and their choices; None if there are none such."""
        units, width = self.gradient.shape
        if width > 1 or len(selections) != 1 or not self.clears:
            return None
        if not isinstance(selections[0], TopOfParts):
            return [(range(units), choice_of(selections[0], units, draw, self.state))]
        ranges = [part for part in draw.parts if isinstance(part, range) and len(part)]
        if sum(map(len, ranges)) < units:
            return None
        return [(part, UnitChoice(TOP, count_of(selections[0].density, len(part)))) for part in ranges]

    def _cut(self, momentum: float | None, cuts: list[tuple[range, UnitChoice]]) -> tuple[float, bool, Taken]:
        gradient, residual, velocity, velocity_out = self._sources(momentum)
        size, left = self.gradient.element_size(), self.total.data_ptr()
        squares, finite, taken = 0.0, True, Taken(0, 0.0)
        for part, choice in cuts:
            at = 4 * part.start
            values = gradient + size * part.start, _moved(residual, at), left + at
            speeds = _moved(velocity, at), _moved(velocity_out, at), momentum or 0.0
            all, here = self.kernels.contribute(self.dtype, len(part), *values, choice, *speeds)
            squares, finite = squares + all.squares, finite and all.finite
            taken = Taken(taken.count + here.count, taken.squares + here.squares, here.threshold)
        return squares, finite, taken

    def _take_marked(self, selections: Sequence[Selection], draw: Draw) -> Taken:
        """Take rows, units of several selections, or units of scattered parts: by a mark for each unit."""
        units, width = self.gradient.shape
        marks = marked(self.kernels, self.total, selections, draw, self.state)
        into = self.gradient.data_ptr(), _address(self.velocity if self.clears else None)
        return self.kernels.take_rows(self.dtype, units, self.total.data_ptr(), width, marks.data_ptr(), *into)


def marked(
    kernels: CompressionKernels,
    values: torch.Tensor,
    selections: Sequence[Selection],
    draw: Draw,
    state: FlatState | None = None,
    whole: int = 0,
) -> torch.Tensor:
    """Return bits [ceil(units / 64)] int64 of the units of ``values`` [units, width] float32 that ``selections`` take.

    Each selection finds the units that those before it left, as the taken ones are zero. ``whole``: the units of which
    a share is taken; 0 for those of ``values``.
    """
    units, width = values.shape
    magnitudes, marks = (
        torch.empty(units, dtype=torch.float32, device="cpu"),
        torch.zeros(-(-units // 64), dtype=torch.int64, device="cpu"),
    )
    kernels.row_magnitudes(values.data_ptr(), units, width, magnitudes.data_ptr())
    at = magnitudes.data_ptr(), marks.data_ptr()
    for selection in selections:
        if isinstance(selection, TopOfParts):
            for part in filter(len, draw.parts):
                of = (
                    torch.arange(part.start, part.stop, dtype=torch.int64, device="cpu")
                    if isinstance(part, range)
                    else part.contiguous()
                )
                kernels.mark_part(of.data_ptr(), len(part), at[0], count_of(selection.density, len(part)), at[1])
        else:
            threshold = kernels.mark(units, at[0], choice_of(selection, whole or units, draw, state), at[1])
            remember_threshold(selection, threshold, draw, state, units, None)
    return marks


def _address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _moved(address: int, by: int) -> int:
    return address + by if address else 0
