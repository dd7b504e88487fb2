"""Linear selections: a shorter dense tensor of the same coordinates on all ranks, and its expansion.

    short = values of the units of Random, Probable and Heavy | cells of Sketch and Heavy      # one after another

Ranks sum the short tensor by the plan. The result for a unit is its value where it was among the chosen, and otherwise
the sketch's estimate: the median of its cells, damped. A sketch is of all ranks' values together, so that losses can't
be told apart by rank: each rank keeps its own values less an equal share of the result, and these sum up to the loss.

In a sketch with fewer cells than units the medians of all units have more noise than signal, and with residuals the
noise would grow from call to call. So a median counts fully where it stands out of the noise of its row; the others are
multiplied by cells / (cells + units), which leaves the least of the gradient behind on average: all that in C++,
``zenc/compress/sketch.h``. The estimates of Heavy are no part of the result: they choose units for the next call.

Transforms of chunks are linear, too: coefficients = values of a chunk, times a matrix; values = coefficients, times the
transposed one, in place. Matrices are made once by the host, in float64 and by operations that are rounded alike on
every machine, and rounded to float32. Products of two such values are exact in float64, and are added in the order of
the chunk: equal values have equal bits on all devices, whether they fuse products and sums or not. There and back again
values differ by rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch

from zenc.runtime.call.layout import DTYPE_NAMES
from zenc.runtime.lossy.gpu_kernels import GpuCompression
from zenc.runtime.lossy.kernels import CompressionKernels
from zenc.runtime.lossy.residual_store import FlatState
from zenc.runtime.lossy.supports import key_for
from zenc.scheme.compression import Dct, Heavy, Linear, Probable, Random, Selection, Sketch, Transform, count_of

HOST = torch.device("cpu")
BETA = 0.9
"""The share of the old values in the running mean of magnitudes by which probable units are found."""


@dataclass(frozen=True, slots=True)
class SketchShape:
    """A sketch of ``rows`` rows of ``cells`` each, whose hashes have the key ``key``; it may only choose units."""

    rows: int
    cells: int
    key: int
    chooses: bool


@dataclass(slots=True)
class LinearMap:
    """The short tensor of one call over ``units`` [units, width]: ``chosen`` units first, then a sketch, if any."""

    kernels: CompressionKernels | GpuCompression
    units: int
    width: int
    chosen: list[torch.Tensor] = field(default_factory=list)
    sketch: SketchShape | None = None
    estimates: torch.Tensor | None = None
    """After ``pull`` the magnitudes [elements] of all units in a sketch that chooses, float32."""

    @property
    def numel(self) -> int:
        """Elements of the short tensor."""
        cells = self.sketch.rows * self.sketch.cells if self.sketch else 0
        return sum(len(ids) for ids in self.chosen) * self.width + cells

    @property
    def is_wide(self) -> bool:
        """Return whether the short tensor is float32, whatever the gradient is."""
        return self.sketch is not None

    def push(self, left: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the short tensor [numel] of ``left`` [units, width] float32, whose chosen values become losses."""
        short = torch.empty(self.numel, dtype=dtype, device=left.device)
        name, at = DTYPE_NAMES[dtype], short.data_ptr()
        for ids in self.chosen:
            of = ids.data_ptr(), len(ids), left.data_ptr(), at, 0, self.width
            self.kernels.take_units(name, *of)
            at += len(ids) * self.width * dtype.itemsize
        if self.sketch is not None:
            shape = self.sketch.rows, self.sketch.cells, self.sketch.key
            self.kernels.sketch(left.data_ptr(), left.numel(), *shape, at)
        return short

    def pull(self, short: torch.Tensor, out: torch.Tensor, left: torch.Tensor, ranks: int) -> None:
        """Write ``out`` [units, width]: the expansion of the sum ``short`` [numel]; take a share of it off ``left``."""
        if self.sketch is not None:
            shape = self.sketch.rows, self.sketch.cells, self.sketch.key
            at = short[-self.sketch.rows * self.sketch.cells :].data_ptr()
            self.kernels.query_sketch(DTYPE_NAMES[out.dtype], left.numel(), at, *shape, out.data_ptr())
        if self.sketch is not None and self.sketch.chooses:
            self.estimates = out.abs().float().view(-1)
            out.zero_()
        elif self.sketch is not None:
            for ids in self.chosen:
                out[ids] = 0.0
            left.sub_(out, alpha=1 / ranks)
        else:
            out.zero_()
        first = 0
        for ids in self.chosen:
            count = len(ids) * self.width
            out[ids] = short[first : first + count].view(-1, self.width).to(out.dtype)
            first += count

    def keep(self, losses: torch.Tensor, left: torch.Tensor) -> None:
        """Add ``losses`` [numel] of the short tensor to ``left`` [units, width], which has a sketch's already."""
        first = 0
        for ids in self.chosen:
            count = len(ids) * self.width
            left[ids] += losses[first : first + count].view(-1, self.width)
            first += count


def map_of(
    kernels: CompressionKernels | GpuCompression,
    selections: Sequence[Selection],
    units: int,
    width: int,
    salt: int,
    state: FlatState | None,
    device: torch.device = HOST,
) -> LinearMap:
    """Return the map of ``selections``, all linear, in the call of ``salt`` on ``device``; the same on all ranks."""
    found = LinearMap(kernels, units, width)
    for selection in selections:
        match selection:
            case Random(density, seed):
                ids = torch.empty(count_of(density, units), dtype=torch.int64, device=device)
                kernels.draw_units(units, len(ids), key_for(seed, salt), ids.data_ptr())
                found.chosen.append(_others(ids, found.chosen))
            case Probable(density):
                found.chosen.append(
                    _others(_probable(kernels, count_of(density, units), (units, width), state, device), found.chosen)
                )
            case Heavy(density):
                found.chosen.append(_probable(kernels, count_of(density, units), (units, width), state, device))
                found.sketch = _shape_of(selection.sketch, units * width, salt, chooses=True)
            case Sketch():
                found.sketch = _shape_of(selection, units * width, salt)
    return found


def _shape_of(of: Sketch, values: int, salt: int, chooses: bool = False) -> SketchShape:
    return SketchShape(of.rows, max(1, round(of.share * values / of.rows)), key_for(of.seed, salt), chooses)


def _others(ids: torch.Tensor, chosen: Sequence[torch.Tensor]) -> torch.Tensor:
    for before in chosen:
        ids = ids[~torch.isin(ids, before)]
    return ids.contiguous()


def _probable(
    kernels: CompressionKernels | GpuCompression,
    k: int,
    shape: tuple[int, int],
    state: FlatState | None,
    device: torch.device,
) -> torch.Tensor:
    """Return the units [k] that were greatest in recent results; the first ones without a history."""
    if state is None or state.now.history is None:
        return torch.arange(k, device=device, dtype=torch.int64)
    by = state.now.history
    if shape[1] > 1:
        by = by.view(shape).amax(dim=1).contiguous()
    if isinstance(kernels, GpuCompression):
        return kernels.greatest_units(by, k)
    threshold = kernels.exact_threshold(by.data_ptr(), shape[0], k)
    ids = torch.empty(k, dtype=torch.int64, device="cpu")
    kernels.list_taken(by.data_ptr(), shape[0], threshold, ids.data_ptr())
    return ids


def is_linear(selections: Sequence[Selection]) -> bool:
    """Return whether ``selections`` make a shorter tensor."""
    return any(isinstance(one, Linear) for one in selections)


def remember(
    kernels: CompressionKernels | GpuCompression,
    state: FlatState,
    result: torch.Tensor,
    estimates: torch.Tensor | None = None,
) -> None:
    """Write the next history of ``state``: ``estimates`` [elements], if any, or by the sum ``result`` [elements]."""
    history = state.room("history")
    if estimates is not None:
        history.copy_(estimates)
        return
    if state.now.history is None:
        history.zero_()
    else:
        history.copy_(state.now.history)
    kernels.remember(DTYPE_NAMES[result.dtype], result.numel(), result.data_ptr(), BETA, history.data_ptr())


@dataclass(frozen=True, slots=True)
class ChunkTransform:
    """The transform of a call, whose carrier has the ``coefficients`` [values] float32 that are selected."""

    kernels: CompressionKernels | GpuCompression
    of: Transform
    coefficients: torch.Tensor

    @property
    def is_wide(self) -> bool:
        """Return whether the carrier is float32, whatever the gradient is."""
        return True

    def push(self, left: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the coefficients [values], which were taken from those of ``left`` before."""
        return self.coefficients

    def pull(self, short: torch.Tensor, out: torch.Tensor, left: torch.Tensor, ranks: int) -> None:
        """Write ``out`` [units, width] float32: the values of the sum ``short`` [values]."""
        flat = out.view(-1)
        flat.copy_(short)
        self.turn(flat, back=True)

    def keep(self, losses: torch.Tensor, left: torch.Tensor) -> None:
        """Add the values of ``losses`` [values] of coefficients, which become these, to ``left`` [units, width]."""
        self.turn(losses, back=True)
        left.view(-1).add_(losses)

    def turn(self, values: torch.Tensor, back: bool = False) -> None:
        """Turn ``values`` [values] float32 into coefficients, or ``back``; a short last chunk at its own length."""
        chunk = self.of.chunk if isinstance(self.of, Dct) else self.of.block
        rest = values.numel() % chunk
        if whole := values.numel() - rest:
            self._multiply(values[:whole], chunk, back)
        if rest and isinstance(self.of, Dct):
            self._multiply(values[whole:], rest, back)

    def _multiply(self, values: torch.Tensor, chunk: int, back: bool) -> None:
        matrix = matrix_for(isinstance(self.of, Dct), chunk, back, values.device)
        self.kernels.transform(values.data_ptr(), values.numel(), chunk, matrix.data_ptr())


@lru_cache(maxsize=64)
def matrix_for(of_cosines: bool, chunk: int, back: bool, device: torch.device) -> torch.Tensor:
    """Return the matrix [chunk, chunk] float32 of the DCT-II or, of a power of two, of Walsh and Hadamard."""
    made = _cosines(chunk) if of_cosines else _signs(chunk)
    return (made.T if back else made).to(torch.float32).contiguous().to(device)


def _cosines(chunk: int) -> torch.Tensor:
    """Return sqrt(2 / chunk) cos(pi (2 i + 1) k / (2 chunk)) at [i, k], of which column 0 is 1 / sqrt(chunk)."""
    table = torch.tensor([_cosine(each, chunk) for each in range(4 * chunk)], dtype=torch.float64, device="cpu")
    counted = torch.arange(chunk, dtype=torch.int64, device="cpu")
    made = table[(2 * counted + 1)[:, None] * counted % (4 * chunk)] * math.sqrt(2 / chunk)
    made[:, 0] = math.sqrt(1 / chunk)
    return made


def _cosine(part: int, chunk: int) -> float:
    """Return cos(pi / 2 * part / chunk), 0 <= part < 4 * chunk; libraries of other machines round theirs otherwise."""
    part = min(part, 4 * chunk - part)
    if part > chunk:
        return -_cosine(2 * chunk - part, chunk)
    angle = math.pi / 2 * part / chunk
    term = total = 1.0
    for power in range(2, 26, 2):
        term *= -angle * angle / (power * (power - 1))
        total += term
    return total


def _signs(chunk: int) -> torch.Tensor:
    made = torch.ones(1, 1, dtype=torch.float64, device="cpu")
    while len(made) < chunk:
        made = torch.cat((torch.cat((made, made), 1), torch.cat((made, -made), 1)))
    return made * math.sqrt(1 / chunk)
