"""Segments in numpy arrays, as kernels for GPUs see them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.emulator.device import Device, Segment
from zenc.scheme.model import Format
from zenc.wire.constants import RANK_BITS, RANKED_WORDS, WIRE_FORMATS

RUBBISH = 0xA5A5A5A5A5A5A5A5


def rubbish(words: int) -> np.ndarray:
    """Return words that no kernel may leave behind, nor depend on."""
    return np.full(words, RUBBISH, np.uint64)


def words_of(slots: int) -> int:
    return -(-slots // 64)


def ranks_of(slots: int) -> int:
    return -(-words_of(slots) // RANKED_WORDS) + 1


def whole(wire: Format, present: np.ndarray, slots: int) -> np.ndarray:
    """Return the slots that are present where ``wire`` fills up those that it sends, ascending."""
    if wire is Format.DENSE:
        return np.arange(slots)
    if not wire.block:
        return np.sort(present)
    filled = np.unique(present // wire.block)[:, None] * wire.block + np.arange(wire.block)
    return filled[filled < slots]


def ranks(bitmap: np.ndarray, start: int = 0) -> np.ndarray:
    """Return the ranks of ``templates/shared/zenc/bits.h``, counted from ``start`` on."""
    kept = ranks_of(64 * len(bitmap))
    counts = np.zeros((kept, RANKED_WORDS), np.uint64)
    counts.reshape(-1)[: len(bitmap)] = np.bitwise_count(bitmap)
    ends = np.cumsum(counts, axis=1)
    below = np.cumsum(ends[:, -1]) - ends[:, -1] + np.uint64(start)
    third, fifth, seventh = (ends[:, k] << np.uint64(RANK_BITS + 9 * i) for i, k in enumerate((1, 3, 5)))
    return below | third | fifth | seventh


def set_between(first: np.uint64, last: np.uint64) -> int:
    """Return the bits that are set from where one of the ranks is kept to where a later one is."""
    return (int(last) - int(first)) % (1 << RANK_BITS)


@dataclass
class Piece:
    """A segment. Arrays that a kernel has no use for are None; ``format`` is a number of ``WIRE_NUMBERS``."""

    slots: int
    bitmap: np.ndarray | None = None
    ranks: np.ndarray | None = None
    index: np.ndarray | None = None
    values: np.ndarray | None = None
    count: int = 0
    format: int = -1
    part: int = 0

    def ranked(self, start: int = 0) -> Piece:
        """Return the piece with the ranks of its bitmap, and its count."""
        self.ranks = ranks(self.bitmap, start)
        self.count = set_between(self.ranks[0], self.ranks[-1])
        return self

    def descriptor(self) -> Segment:
        """Return the descriptor, which keeps the arrays that it points to."""
        arrays = (self.bitmap, self.ranks, self.index, self.values)
        addresses = [None if array is None else array.ctypes.data for array in arrays]
        made = Segment(*addresses, self.slots, self.count, self.format, self.part)
        made.arrays = [array for array in arrays if array is not None]
        return made


def table(pieces: Sequence[Piece]) -> ctypes.Array[Segment]:
    """Return the table of pieces to upload, which keeps their arrays."""
    descriptors = [piece.descriptor() for piece in pieces]
    made = (Segment * max(len(pieces), 1))(*descriptors)
    made.arrays = [array for descriptor in descriptors for array in descriptor.arrays]
    return made


def high_words(piece: Piece) -> Piece:
    """Return high words of an elias_fano index, and room for their ranks; nothing for others and bad counts."""
    if WIRE_FORMATS[piece.format : piece.format + 1] != (Format.ELIAS_FANO,) or piece.count > piece.slots:
        return Piece(0)
    listed = min(piece.count, piece.slots - piece.count)
    others = piece.slots - listed
    low = (others // listed).bit_length() - 1 if listed else 0
    first = words_of(listed * low)
    words = piece.index[first : first + words_of(listed + (others >> low) if listed else 0)]
    return Piece(64 * len(words), words, rubbish(ranks_of(64 * len(words))))


def decoded(device: Device, grid: tuple[int, int], pieces: Sequence[Piece], seed: int | None = None) -> list[int]:
    """Return the status of each piece, as launchers make their bitmaps and ranks."""
    words = 6 + max(words_of(piece.slots) for piece in pieces) // 128
    checks, status = np.zeros((len(pieces), 3), np.uint64), np.full(len(pieces), 99, np.int64)
    segments, high, n = table(pieces), table([high_words(piece) for piece in pieces]), len(pieces)

    def work() -> list[object]:
        return [np.zeros(words * n, np.uint64), words]

    listed = [WIRE_FORMATS[each.format : each.format + 1] == (Format.ELIAS_FANO,) for each in pieces]
    there = [of_list or each.bitmap is each.index for of_list, each in zip(listed, pieces, strict=True)]
    by_block = grid[0] == 1
    if any(listed) and not by_block:
        device.launch("zenc_begin_listed", grid, [segments, n, high, *work()], seed=seed)
        device.launch("zenc_mark_listed", grid, [segments, n, high, checks], seed=seed)
    if by_block or not all(there):
        device.launch("zenc_decode_index", grid, [segments, n, high, checks, status, *work()], seed=seed)
    if any(there) and not by_block:
        device.launch("zenc_decode_bitmaps", grid, [segments, n, checks, status, *work()], seed=seed)
    return status.tolist()
