"""The kernels of all mappings, with the seeds of shipped schemes, and numpy arrays as the kernels see them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from zenc.codegen.render import render
from zenc.runtime.cpu.geometry import Geometry
from zenc.runtime.cpu.kernels import Kernels
from zenc.runtime.cpu.library import load
from zenc.scheme.model import Contiguous, HierarchicalHash, Holders, Mapping, Permutation

SEED = 0x5EED
MAPPINGS: dict[str, Mapping] = {
    "contiguous": Contiguous(),
    "permutation": Permutation(SEED),
    "hierarchical_hash": HierarchicalHash(3, 2.0, 0.2, SEED),
    "all in the list": HierarchicalHash(1, 0.0, 0.0, SEED),
}
"""The mappings; of hashing also with a memory of no cells, which sends every unit the way of overflow."""
OTHERS: dict[str, Mapping] = {
    "holders": Holders(),
    "permuted words": Permutation(SEED, block=64),
    "another permutation": Permutation((1 << 64) - 1),
}
"""Mappings that not every test tries."""


@dataclass(frozen=True)
class Dtype:
    """An element type: how numpy stores it, and its values as float64. numpy has no bf16: torch rounds it."""

    name: str
    storage: type

    def widen(self, stored: np.ndarray) -> np.ndarray:
        if self.name != "bf16":
            return stored.astype(np.float64)
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)

    def narrow(self, values: np.ndarray) -> np.ndarray:
        if self.name != "bf16":
            return values.astype(self.storage)
        rounded = torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(torch.bfloat16)
        return rounded.view(torch.int16).numpy().view(np.uint16)

    def canonical(self, stored: np.ndarray) -> np.ndarray:
        """Return values with one NaN in place of every other: which one a sum is depends on the machine."""
        return np.where(np.isnan(self.widen(stored)), self.narrow(np.array(np.nan, np.float32)), stored)

    def sum(self, rows: list[np.ndarray]) -> np.ndarray:
        """Add stored rows one after the other in the type that sums are made in, rounded once."""
        if len(rows) == 1:
            return rows[0]
        wide = np.float64 if self.name == "f64" else np.float32
        total = self.widen(rows[0]).astype(wide)
        for row in rows[1:]:
            total = total + self.widen(row).astype(wide)
        return self.narrow(total)


DTYPES = [Dtype("f32", np.float32), Dtype("f64", np.float64), Dtype("f16", np.float16), Dtype("bf16", np.uint16)]


@pytest.fixture(params=DTYPES, ids=lambda dtype: dtype.name)
def dtype(request: pytest.FixtureRequest) -> Dtype:
    return request.param


@pytest.fixture(scope="session")
def kernels_of() -> Callable[[str], Kernels]:
    """kernels_of(mapping): compiled, or found in the user's cache."""

    def compiled(name: str) -> Kernels:
        mapping = {**MAPPINGS, **OTHERS}[name]
        return load(render(type(mapping)), mapping)

    return compiled


@pytest.fixture(params=MAPPINGS)
def kernels(request: pytest.FixtureRequest, kernels_of: Callable[[str], Kernels]) -> Kernels:
    return kernels_of(request.param)


@pytest.fixture(scope="session")
def hashing(kernels_of: Callable[[str], Kernels]) -> Kernels:
    return kernels_of("hierarchical_hash")


@pytest.fixture(scope="session")
def permuting(kernels_of: Callable[[str], Kernels]) -> Kernels:
    return kernels_of("permutation")


def address(array: np.ndarray) -> int:
    assert array.flags.c_contiguous
    return array.ctypes.data


class Tensors:
    """A kernel library on numpy arrays: allocates outputs, fills them with rubbish first, returns them."""

    def __init__(self, kernels: Kernels, geometry: Geometry, dtype: Dtype) -> None:
        self.kernels, self.geometry, self.dtype = kernels, geometry, dtype

    def slots(self, units: np.ndarray) -> np.ndarray:
        units = np.ascontiguousarray(units, np.int64)
        out = np.empty(len(units), np.int64)
        self.kernels.slots_of_units(self.geometry, address(units), len(units), address(out))
        return out

    def words(self) -> np.ndarray:
        return np.full(self.geometry.words, 0xA5A5A5A5A5A5A5A5, np.uint64)

    def values(self, rows: int) -> np.ndarray:
        out = np.empty((rows, self.geometry.width), self.dtype.storage)
        out.view(np.uint8)[...] = 0xA5
        return out

    def mark_units(self, units: np.ndarray) -> np.ndarray:
        return self.mark_slots(units)[0]

    def mark_slots(self, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        bitmap, units = self.words(), np.ascontiguousarray(units, np.int64)
        slots = np.full(len(units), -1, np.int64)
        self.kernels.mark_units(self.geometry, address(units), len(units), address(bitmap), address(slots))
        return bitmap, slots

    def mark_dense(self, tensor: np.ndarray) -> np.ndarray:
        bitmap = self.words()
        count = self.kernels.mark_dense(self.dtype.name, self.geometry, address(tensor), address(bitmap))
        assert count == len(occupied(bitmap))
        return bitmap

    def rank(self, bitmap: np.ndarray) -> tuple[np.ndarray, int]:
        before = np.empty(len(bitmap), np.uint64)
        return before, self.kernels.rank(address(bitmap), len(bitmap), address(before))

    def place_units(self, units: np.ndarray, values: np.ndarray, divisor: int = 1) -> tuple[np.ndarray, np.ndarray]:
        bitmap, slots = self.mark_slots(units)
        before, count = self.rank(bitmap)
        outs = PartOuts(self, bitmap)
        self.kernels.place_units(
            self.dtype.name, self.geometry, address(slots), len(slots), address(values), address(bitmap),
            address(before), count, divisor, outs.addresses,
        )  # fmt: skip
        return bitmap, outs.joined()

    def place_dense(self, tensor: np.ndarray, divisor: int = 1) -> tuple[np.ndarray, np.ndarray]:
        bitmap = self.mark_dense(tensor)
        _, count = self.rank(bitmap)
        outs = PartOuts(self, bitmap)
        self.kernels.place_dense(
            self.dtype.name, self.geometry, address(tensor), address(bitmap), divisor, outs.addresses
        )
        assert count == len(outs.joined())
        return bitmap, outs.joined()

    def part_counts(self, bitmap: np.ndarray) -> list[int]:
        return [len(occupied(part)) for part in bitmap.reshape(self.geometry.parts, self.geometry.part_words)]

    def part_values(self, bitmap: np.ndarray, values: np.ndarray) -> list[int]:
        """Return the address of each part's values, in values [count, width] of all parts."""
        starts = np.concatenate([[0], np.cumsum(self.part_counts(bitmap))])[:-1].astype(np.int64)
        return [address(values) + int(start) * self.geometry.width * values.itemsize for start in starts]

    def expand_dense(self, bitmap: np.ndarray, values: np.ndarray, tensor: np.ndarray | None = None) -> np.ndarray:
        """Write the sum in place of ``tensor``, or of zeros without one."""
        if tensor is None:
            tensor = np.zeros((self.geometry.units, self.geometry.width), self.dtype.storage)
        parts, own = self.part_values(bitmap, values), self.mark_dense(tensor)
        at = address(bitmap), parts, address(own), address(tensor)
        self.kernels.expand_dense(self.dtype.name, self.geometry, *at)
        return tensor

    def expand_units(self, bitmap: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ids, out = np.full(len(values), -1, np.int64), self.values(len(values))
        parts = self.part_values(bitmap, values)
        count = self.kernels.expand_units(
            self.dtype.name, self.geometry, address(bitmap), parts, address(ids), address(out)
        )
        assert count == len(values)
        return ids, out


class PartOuts:
    """A buffer for each part, none for empty parts, with a row of rubbish behind it that has to stay."""

    def __init__(self, tensors: Tensors, bitmap: np.ndarray) -> None:
        self.counts = tensors.part_counts(bitmap)
        self.buffers = [tensors.values(count + 1) for count in self.counts]
        self.addresses = [address(b) if count else 0 for b, count in zip(self.buffers, self.counts, strict=True)]

    def joined(self) -> np.ndarray:
        """Return the rows of all parts, one after the other."""
        for buffer in self.buffers:
            assert (buffer[-1:].view(np.uint8) == 0xA5).all()
        return np.concatenate([buffer[:-1] for buffer in self.buffers])


def occupied(words: np.ndarray) -> np.ndarray:
    """Return the numbers of the set bits, ascending."""
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))


def bitmap_of(slots: np.ndarray, total: int) -> np.ndarray:
    """Return the words with bits at ``slots``, for parts of ``total`` slots."""
    bits = np.zeros(-(-total // 64) * 64, np.uint8)
    bits[np.asarray(slots, np.int64)] = 1
    return np.packbits(bits, bitorder="little").view(np.uint64)


class Helpers:
    """Helpers of this file that test modules need."""

    address = staticmethod(address)
    occupied = staticmethod(occupied)
    bitmap_of = staticmethod(bitmap_of)
    Tensors = Tensors
    DTYPES = DTYPES


@pytest.fixture(scope="session")
def at() -> type[Helpers]:
    return Helpers
