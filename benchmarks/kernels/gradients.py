"""The gradient of a rank and its buffers on the way through the kernels; each kernel is a method without arguments.

    units x width float32, a share of the units occupied, cut in 8 parts      pack -> wire -> decode -> merge -> expand

All buffers are made, and touched, once, so that the kernels alone are measured; the cost of fresh memory is apart.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
import torch

from zenc.runtime.cpu.kernels import Kernels
from zenc.scheme.model import Format
from zenc.wire.formats import wire_layout

PARTS = 8
DTYPE = "f32"
BLOCK = Format.BLOCK_16


@dataclass(frozen=True)
class Shape:
    """The shape of a gradient; ``density`` is the share of the units that a rank has."""

    name: str
    units: int
    width: int
    density: float

    def smaller(self, scale: int) -> Shape:
        """Return the shape with fewer units, to see whether all runs."""
        return Shape(self.name, self.units // scale, self.width, self.density)


SHAPES = (
    Shape("rows 200k x 64, 2 %", 200_000, 64, 0.02),
    Shape("elements 4M, 1 %", 4_000_000, 1, 0.01),
    Shape("elements 4M, 5 %", 4_000_000, 1, 0.05),
    Shape("nothing", 4_000_000, 1, 0.0),
)
NOTHING = SHAPES[-1]
"""The shape whose tensor has no units: it shows the cost of a call of each kernel."""


def at(array: np.ndarray) -> int:
    return array.ctypes.data


def zeros(*shape: int) -> np.ndarray:
    """Return float32 zeros in memory as PyTorch makes it, and so as the run time has it: from a cache line on."""
    return torch.zeros(*shape).numpy()


class Gradient:
    """The gradient of one rank: ids [n] int64, values [n, width], dense [units, width], and the kernels' results."""

    def __init__(self, kernels: Kernels, shape: Shape, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        self.kernels, self.units, self.width = kernels, 0 if shape.density == 0 else shape.units, shape.width
        self.g = kernels.geometry(self.units, shape.width, PARTS, dense=True)
        self.n = round(self.units * shape.density)
        self.unit_bytes = 4 * shape.width
        self.ids = rng.permutation(self.units)[: self.n].astype(np.int64)
        self.values = rng.standard_normal((self.n, self.width)).astype(np.float32)
        self.dense = zeros(self.units, self.width)
        self.dense[self.ids] = self.values
        words = self.g.words
        self.bitmap, self.before, self.decoded = (np.zeros(words, np.uint64) for _ in range(3))
        self.blocks, self.part = (np.zeros(self.g.part_words, np.uint64) for _ in range(2))
        self.slots, self.back = np.zeros(self.n, np.int64), np.zeros(self.n, np.int64)
        self.wire = np.zeros(self.values.nbytes // 8 + 2 * words + self.n + 64, np.uint64)
        self.placed = zeros(self.n, self.width)
        self.index = np.zeros(self.n + 2 * words + 64, np.uint64)
        self.pack()

    def permute(self) -> None:
        self.kernels.slots_of_units(self.g, at(self.ids), self.n, at(self.slots))

    def permute_back(self) -> None:
        self.kernels.units_of_slots(self.g, at(self.slots), self.n, at(self.back))

    def mark(self) -> None:
        self.kernels.mark_units(self.g, at(self.ids), self.n, at(self.bitmap), at(self.slots))

    def mark_dense(self) -> None:
        self.kernels.mark_dense(DTYPE, self.g, at(self.dense), at(self.bitmap))

    def rank(self) -> int:
        return self.kernels.rank(at(self.bitmap), self.g.words, at(self.before))

    def place(self) -> None:
        self._place(self.slots, self.values, self.part_places(self.placed))

    def place_dense(self) -> None:
        outs = self.part_places(self.placed)
        self.kernels.place_dense(DTYPE, self.g, at(self.dense), at(self.bitmap), at(self.before), 1, outs)

    def _place(self, slots: np.ndarray, values: np.ndarray, outs: list[int]) -> None:
        where = (at(self.bitmap), at(self.before), self.n, 1, outs)
        self.kernels.place_units(DTYPE, self.g, at(slots), self.n, at(values), *where)

    def starts(self) -> list[int]:
        """Return the number of units before each part, and in all."""
        if not self.g.part_words:
            return [0] * (PARTS + 1)
        return [*self.before[:: self.g.part_words].tolist(), self.n]

    def part_places(self, values: np.ndarray) -> list[int]:
        """Return the address at which each part begins in ``values`` [n, width]."""
        return [at(values) + start * self.unit_bytes for start in self.starts()[:-1]]

    def pack(self) -> None:
        """Pack COO rows to the bodies of all parts, one after the other."""
        self.mark()
        self.rank()
        self._place(self.slots, self.values, self.lay_out())
        self.encode()

    def pack_dense(self) -> None:
        """Pack a dense tensor to the bodies of all parts, one after the other."""
        self.mark_dense()
        self.rank()
        outs = self.lay_out()
        self.kernels.place_dense(DTYPE, self.g, at(self.dense), at(self.bitmap), at(self.before), 1, outs)
        self.encode()

    def lay_out(self) -> list[int]:
        """Return the places of each part's values: bodies and their formats follow from the counts alone."""
        self.bodies, self.part_values, place = [], [], at(self.wire)
        starts = self.starts()
        for part in range(PARTS):
            slots, count = self.g.slots_of(part), starts[part + 1] - starts[part]
            wire, index, body = wire_layout(Format.AUTO, slots, count, self.unit_bytes)
            self.bodies.append((wire, place, slots, count))
            self.part_values.append(place + index)
            place += body
        return self.part_values

    def encode(self) -> None:
        """Encode the indices in the smallest formats; the values are in their places."""
        for part, (wire, body, slots, count) in enumerate(self.bodies):
            self.kernels.encode_index(wire, self.part_bitmap(self.bitmap, part), slots, count, body)

    def decode(self) -> None:
        """Decode the bitmaps of all parts; the values stay where they are."""
        for part, (wire, body, slots, count) in enumerate(self.bodies):
            self.kernels.decode_index(wire, body, slots, count, self.part_bitmap(self.decoded, part))

    def part_bitmap(self, bitmap: np.ndarray, part: int) -> int:
        return at(bitmap) + 8 * part * self.g.part_words

    def encode_part(self, wire: Format) -> int:
        """Encode the index of part 0 in ``wire``, of whole blocks if that is a format of blocks; return its bytes."""
        slots, count, bitmap = self.g.slots_of(0), self.bodies[0][3], self.bitmap
        if wire.block:
            bitmap = self.blocks
            count = self.kernels.fill_blocks(at(self.bitmap), slots, wire.block, at(bitmap))
        self.encoded = wire, slots, count
        return self.kernels.encode_index(wire, at(bitmap), slots, count, at(self.index))

    def decode_part(self) -> None:
        wire, slots, count = self.encoded
        self.kernels.decode_index(wire, at(self.index), slots, count, at(self.part))


class Sum:
    """The sum of ``ranks`` gradients: part 0 merged, and the whole sum expanded."""

    def __init__(self, gradients: list[Gradient]) -> None:
        first, self.keep = gradients[0], gradients
        self.kernels, self.g, self.width, self.units = first.kernels, first.g, first.width, first.units
        for each in gradients:
            each.decode()
        self.bitmaps = [at(each.decoded) for each in gradients]
        self.values = [each.part_values[0] for each in gradients]
        self.union = np.zeros(self.g.part_words, np.uint64)
        words = max(self.g.part_words, 1)
        count = self.kernels.union(self.bitmaps, self.g.part_words, at(self.union))
        self.out = zeros(count, self.width)
        self.received_bytes = sum(each.bodies[0][3] for each in gradients) * first.unit_bytes
        self.whole, self.nothing = np.zeros(self.g.words, np.uint64), np.zeros(self.g.words, np.uint64)
        every = [at(each.decoded) for each in gradients]
        self.count = self.kernels.union(every, self.g.words, at(self.whole))
        self.sums = np.ones((self.count, self.width), np.float32)
        before = np.zeros(self.g.words + 1, np.uint64)
        self.kernels.rank(at(self.whole), self.g.words, at(before))
        starts = before[: self.g.words : words].tolist() or [0] * PARTS
        self.parts = [at(self.sums) + start * first.unit_bytes for start in starts]
        self.ids, self.rows = np.zeros(self.count, np.int64), zeros(self.count, self.width)
        self.dense = zeros(self.units, self.width)

    def merge(self) -> None:
        self.kernels.union(self.bitmaps, self.g.part_words, at(self.union))
        where = (self.bitmaps, self.values, self.g.part_words, self.width, at(self.out))
        self.kernels.merge(DTYPE, *where)

    def expand(self) -> None:
        self.kernels.expand_units(DTYPE, self.g, at(self.whole), self.parts, at(self.ids), at(self.rows))

    def expand_dense(self) -> None:
        self.kernels.expand_dense(DTYPE, self.g, at(self.whole), self.parts, at(self.nothing), at(self.dense))


class Peers:
    """PyTorch's ways to do the same on the same numbers. It makes the memory of its results anew, and keeps it."""

    def __init__(self, gradient: Gradient, summed: Sum) -> None:
        shape = (gradient.units, gradient.width)
        self.dense, self.values = torch.from_numpy(gradient.dense), torch.from_numpy(gradient.values)
        self.ids, self.shape = torch.from_numpy(gradient.ids), shape
        self.table = torch.arange(gradient.units)
        self.occupied = torch.from_numpy(np.flatnonzero(gradient.dense.any(axis=1)))
        self.rows = torch.zeros(shape)
        self.union = torch.from_numpy(np.random.default_rng(0).permutation(gradient.units)[: summed.count])
        self.sums = torch.from_numpy(summed.sums)
        self.part = torch.zeros(gradient.g.slots_of(0), gradient.width)
        self.pieces = [
            (torch.from_numpy(_slots(bitmap, gradient.g.slots_of(0))), gradient.width) for bitmap in _parts(summed)
        ]
        self.piece_values = [torch.ones(ids.numel(), width) for ids, width in self.pieces]

    def look_up(self) -> torch.Tensor:
        return self.table.index_select(0, self.ids)

    def coalesce(self) -> torch.Tensor:
        return _sparse(self.ids, self.values, self.shape).coalesce()

    def coalesce_sum(self) -> torch.Tensor:
        return _sparse(self.union, self.sums, self.shape).coalesce()

    def nonzero(self) -> torch.Tensor:
        return (self.dense.view(-1) if self.shape[1] == 1 else self.dense.any(1)).nonzero()[:, 0]

    def gather(self) -> torch.Tensor:
        return self.dense.index_select(0, self.occupied)

    def nonzero_and_gather(self) -> torch.Tensor:
        found = self.nonzero()
        return (self.dense.view(-1) if self.shape[1] == 1 else self.dense).index_select(0, found)

    def index_add(self) -> torch.Tensor:
        """Add the pieces of part 0 in a dense part."""
        self.part.zero_()
        for (ids, _), values in zip(self.pieces, self.piece_values, strict=True):
            self.part.index_add_(0, ids, values)
        return self.part

    def index_copy(self) -> torch.Tensor:
        return self.rows.zero_().index_copy_(0, self.union, self.sums)


def _sparse(ids: torch.Tensor, values: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    return torch.sparse_coo_tensor(ids[None], values, shape, check_invariants=False)


def _slots(words: np.ndarray, slots: int) -> np.ndarray:
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")[:slots])


def _parts(summed: Sum) -> list[np.ndarray]:
    size = summed.g.part_words
    return [np.ctypeslib.as_array((ctypes.c_uint64 * size).from_address(address)) for address in summed.bitmaps]
