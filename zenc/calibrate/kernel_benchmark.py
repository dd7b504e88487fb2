"""Benchmark of the CPU kernels on gradients of a few shapes: seconds of each kernel.

Single values of several densities make the curve of a kernel, and rows give the speed at which it moves bytes. They run
as in a call, with its memory; PyTorch cuts and collects elements.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch

from zenc.runtime.call.layout import coalesced, contribution_of, layout_of, sparse_result
from zenc.runtime.cpu.geometry import words_of
from zenc.runtime.cpu.kernels import Kernels
from zenc.runtime.cpu.ownership import Agreement, HolderKernels
from zenc.runtime.cpu.segments import HeldSegment, SegmentOps
from zenc.runtime.cpu.value_payload import Rows, SparseOutput
from zenc.scheme.model import Format, Unit
from zenc.simulator.calibration import BOUNDLESS, Curve, Kernel, linear_kernel, rising

ROUNDS = 5
PARTS = 4
HOLDERS = 8
"""The number of ranks whose index sets owners are chosen from."""
SIGHTLESS = frozenset({"index", "owners", "shares"})
"""Kernels that see no values."""
FASTEST = 1e-13
"""A speed in seconds a byte that no memory reaches, for times below the clock's resolution."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a gradient: ``held`` of ``units`` of ``width`` float32 values."""

    units: int
    width: int
    held: int

    @property
    def density(self) -> float:
        """The share of the units that a rank holds."""
        return self.held / self.units


SINGLE = tuple(Shape(2_000_000, 1, held) for held in (600, 6000, 20_000, 60_000, 200_000))
"""Shapes of single values, of 0.03 % to 10 %."""
ROWS = Shape(500_000, 64, 20_000)
CUT = Shape(200_000, 64, 10_000)
"""Rows whose elements a scheme sums."""

Times = Mapping[str, float]
"""Kernel -> seconds for one shape."""
Least = Callable[[Callable[[], object]], float]
"""A function from a function to the fewest seconds that it took."""


class Watch:
    """A stopwatch that times by ``clock``, in seconds, and keeps the differences of rounds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._spreads: list[float] = []

    def least(self, run: Callable[[], object]) -> float:
        """Return the least time of several, after one to warm up."""
        times = []
        for _ in range(ROUNDS + 1):
            started = self.clock()
            run()
            times.append(self.clock() - started)
        least = min(times[1:])
        self._spreads.append(median(times[1:]) / max(least, 1e-9) - 1)
        return least

    @property
    def spread(self) -> float:
        """Return the share by which the median round took longer than the least, exceeded in one of ten things."""
        return sorted(self._spreads)[9 * len(self._spreads) // 10] if self._spreads else 0.0


def timed(mixed: Kernels, ranges: Kernels, watch: Watch) -> list[dict[str, float]]:
    """Return the times of all kernels by ``watch``: for each of SINGLE, for ROWS, and for CUT.

    ``mixed`` are those of a scheme whose parts are mixed, ``ranges`` those of one by holders.
    """
    least = watch.least
    each = [_over_a_cut(mixed, ranges, at, least) | _by_holders(ranges, at, least) for at in (*SINGLE, ROWS)]
    return [*each, _recut(CUT, least)]


def fit_kernels(times: Sequence[Times]) -> dict[str, Kernel]:
    """Return the kernels fitted to the times of ``timed``."""
    *single, rows, recut = times
    return {
        **{name: kernel_of([each[name] for each in single], rows[name], name not in SIGHTLESS) for name in rows},
        **{name: linear_kernel(seconds / (CUT.held * CUT.width)) for name, seconds in recut.items()},
    }


def kernel_of(single: Sequence[float], rows: float, moves: bool) -> Kernel:
    """Return a kernel by the times of SINGLE and ROWS: units x curve(density) + bytes / speed, if it ``moves`` values.

    The curve never falls: what a busy machine makes of it is evened out, by relative errors.
    """
    each = [seconds / shape.units for shape, seconds in zip(SINGLE, single, strict=True)]
    weights = [1 / max(seconds, 1e-15) ** 2 for seconds in each]
    whole = _curve(rising(each, weights))
    if not moves:
        return Kernel(whole, BOUNDLESS)
    of_slots = Kernel(whole, BOUNDLESS).seconds(ROWS.held, 0.0, ROWS.units)
    byte = max(FASTEST, (rows - of_slots) / (4 * ROWS.held * (ROWS.width - 1)))
    without = [max(0.0, seconds - 4 * shape.density * byte) for shape, seconds in zip(SINGLE, each, strict=True)]
    return Kernel(_curve(rising(without, weights)), 1 / byte)


def _curve(seconds: Sequence[float]) -> Curve:
    """Return the curve through ``seconds`` a slot of each of SINGLE, and straight on to 0 units."""
    points = [(shape.density, of_slot) for shape, of_slot in zip(SINGLE, seconds, strict=True)]
    (x, y), (x2, y2), *_ = points
    return ((0.0, max(0.0, y - x * (y2 - y) / (x2 - x))), *points)


def _over_a_cut(mixed: Kernels, ranges: Kernels, shape: Shape, least: Least) -> dict[str, float]:
    made, plain = _Packed(mixed, shape), _Packed(ranges, shape)
    pairs = list(map(list, zip(made.own(0), made.own(1), strict=True)))
    listed, others = plain.own(0), [pair[0] for pair in pairs]
    written = [
        torch.empty(made.shop.measure(s.part, s.count, made.format_of(s))[0], dtype=torch.uint8, device="cpu")
        for s in others
    ]

    def indices() -> None:
        for one, to in zip(others, written, strict=True):
            made.write_and_read(one, to.data_ptr())

    return {
        "pack": least(lambda: made.own(0)),
        "merge": least(lambda: [made.shop.merge(pair, 0, Format.AUTO) for pair in pairs]) / 2,
        "expand": least(lambda: made.shop.expand_units(others)),
        "list": least(lambda: plain.shop.expand_units(listed)),
        "index": least(indices) / 2,
    }


def _by_holders(kernels: Kernels, shape: Shape, least: Least) -> dict[str, float]:
    holding, wanted = HolderKernels(kernels.path), torch.zeros(HOLDERS, HOLDERS, dtype=torch.bool, device="cpu")
    sets = torch.from_numpy(np.stack([_marked(shape, seed) for seed in range(HOLDERS)]))
    wanted[:, 0] = True

    def chosen() -> Agreement:
        return Agreement(kernels, holding, shape.units, [each.data_ptr() for each in sets], sets, wanted)

    alone = torch.stack([sets[0]] * HOLDERS)
    one = Agreement(kernels, holding, shape.units, [each.data_ptr() for each in alone], alone, wanted)
    layout, values = (
        layout_of(_gradient(shape, 0), Unit.AUTO),
        torch.ones(shape.held, shape.width, dtype=torch.float32, device="cpu"),
    )
    parts = [Rows(part, (part,), slots, values.data_ptr(), values) for part, slots in enumerate(one.slots)]

    def joined() -> None:
        tensor = SparseOutput(one, layout, 4 * shape.width)
        for rows in parts:
            tensor.add(rows)

    owners = least(chosen)
    shares = max(0.0, least(lambda: chosen().learn()) - owners)
    return {"join": least(joined), "owners": owners / HOLDERS, "shares": shares / HOLDERS}


class _Packed:
    """Gradients of ``shape`` on their way through ``kernels``."""

    def __init__(self, kernels: Kernels, shape: Shape) -> None:
        self.tensors = [_gradient(shape, seed) for seed in range(2)]
        self.layout = layout_of(self.tensors[0], Unit.AUTO)
        geometry = kernels.geometry(self.layout.units, self.layout.width, PARTS)
        self.shop = SegmentOps(kernels, geometry, self.layout)

    def own(self, number: int) -> list[HeldSegment]:
        return self.shop.pack(contribution_of(self.tensors[number], self.layout), 1, number, [Format.AUTO] * PARTS)

    def format_of(self, segment: HeldSegment) -> Format:
        """Return the smallest format."""
        return self.shop.wire_format(segment.part, segment.count, Format.AUTO)

    def write_and_read(self, segment: HeldSegment, at: int) -> None:
        format, slots, bitmap = self.format_of(segment), self.shop.slots[segment.part], self.shop.bitmaps(1)
        self.shop.kernels.encode_index(format, segment.bitmap, slots, segment.count, at)
        self.shop.kernels.decode_index(format, at, slots, segment.count, bitmap.data_ptr())


def _recut(shape: Shape, least: Least) -> dict[str, float]:
    tensor = _gradient(shape, 0)
    layout = layout_of(tensor, Unit.ELEMENT)
    ids, values = contribution_of(tensor, layout).unit_ids, contribution_of(tensor, layout).values
    assert ids is not None
    return {
        "finer": least(lambda: contribution_of(tensor, layout)),
        "coarser": least(lambda: sparse_result(ids, values, layout)),
    }


def _gradient(shape: Shape, seed: int) -> torch.Tensor:
    ids = torch.from_numpy(_drawn(shape, seed))
    size = (shape.width,) if shape.width > 1 else ()
    values = torch.ones((shape.held, *size), dtype=torch.float32, device="cpu")
    return coalesced(ids[None], values, (shape.units, *size))


def _drawn(shape: Shape, seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.sort(np.random.default_rng(seed).choice(shape.units, shape.held, replace=False, shuffle=False)).astype(
        np.int64
    )


def _marked(shape: Shape, seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return the units that a rank holds as a bitmap over all units."""
    flags = np.zeros(64 * words_of(shape.units), dtype=np.bool_)
    flags[_drawn(shape, seed)] = True
    return np.packbits(flags, bitorder="little").view(np.int64)
