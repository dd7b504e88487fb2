"""Segments in numpy arrays, as kernels for GPUs see them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.emulator.device import Segment

RUBBISH = 0xA5A5A5A5A5A5A5A5


def rubbish(words: int) -> np.ndarray:
    """Words that no kernel may leave behind, nor depend on."""
    return np.full(words, RUBBISH, np.uint64)


def words_of(slots: int) -> int:
    return -(-slots // 64)


def ranks(bitmap: np.ndarray, start: int = 0) -> np.ndarray:
    """The bits below each word and behind the last, counted from ``start`` on."""
    counts = np.bitwise_count(bitmap).astype(np.uint64)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.uint64) + np.uint64(start)


@dataclass
class Piece:
    """One segment. Arrays that a kernel has no use for are None; ``format`` is a number of ``WIRE_NUMBERS``."""

    slots: int
    bitmap: np.ndarray | None = None
    before: np.ndarray | None = None
    index: np.ndarray | None = None
    values: np.ndarray | None = None
    count: int = 0
    format: int = -1
    part: int = 0

    def ranked(self, start: int = 0) -> Piece:
        """With the ranks of its bitmap, and its count."""
        self.before = ranks(self.bitmap, start)
        self.count = int(self.before[-1] - self.before[0])
        return self

    def descriptor(self) -> Segment:
        """It keeps the arrays that it points to."""
        arrays = (self.bitmap, self.before, self.index, self.values)
        addresses = [None if array is None else array.ctypes.data for array in arrays]
        made = Segment(*addresses, self.slots, self.count, self.format, self.part)
        made.arrays = [array for array in arrays if array is not None]
        return made


def table(pieces: Sequence[Piece]) -> ctypes.Array[Segment]:
    """What is uploaded of them; it keeps their arrays."""
    descriptors = [piece.descriptor() for piece in pieces]
    made = (Segment * max(len(pieces), 1))(*descriptors)
    made.arrays = [array for descriptor in descriptors for array in descriptor.arrays]
    return made
