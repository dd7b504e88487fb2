"""Packing of a gradient to the values of its parts, by kernels for GPUs, one launch after another."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tests.emulator.build import compiled
from tests.emulator.device import Device, Partition
from tests.support.pieces import Piece, ranks, ranks_of, rubbish, set_between, table, words_of
from zenc.codegen.render import headers, include_dirs
from zenc.wire.constants import DIGIT_BITS, DTYPE_NUMBERS, FEW_INPUTS, MOST_INPUTS, RANKED_WORDS, SCAN_TILE, SORT_TILE

SEED = 0x5EED
SOURCE = Path(__file__).parents[1] / "targets" / "cuda" / "partition.cpp"


@cache
def _library() -> ctypes.CDLL:
    command = ["-std=c++17", "-O1", "-shared", "-fPIC", *(f"-I{path}" for path in include_dirs("cuda")), str(SOURCE)]
    made = ctypes.CDLL(str(compiled(command, headers("cuda") | {"source": SOURCE.read_text("utf-8")})))
    made.partition.argtypes = (*[ctypes.c_uint64] * 6, ctypes.c_void_p, ctypes.c_void_p)
    return made


def partition(geometry: Any, seed: int = SEED) -> Partition:
    """Return the argument of kernels for ``geometry``, permuted by ``seed``."""
    units, width, parts = geometry.units, geometry.width, geometry.parts
    made = Partition()
    largest = max(geometry.slots_of(part) for part in range(parts))
    tables = geometry.tables.address if geometry.sizes else None  # those of permuted blocks are for CPUs
    cut = (units, width, parts, largest, geometry.block, tables)
    size = _library().partition(seed, *cut, ctypes.addressof(made))
    assert size == ctypes.sizeof(Partition)
    made.arrays = [np.frombuffer(geometry.tables.keep, np.uint64)] if tables else []
    return made


def scan_words(n: int) -> int:
    return 1 + -(-n // SCAN_TILE)


@dataclass
class Packer:
    """The kernels of ``device`` on the tensors of ``tensors`` (``tests/targets/conftest.py``), in grids of ``blocks``.

    With a ``seed`` above 0, threads run in an order drawn from it.
    """

    device: Device
    tensors: Any
    blocks: int = 2
    seed: int | None = None

    @property
    def cut(self) -> list[Any]:
        return [partition(self.tensors.geometry)]

    def launch(self, name: str, arguments: Sequence[Any], rows: int = 1) -> None:
        self.device.launch(name, (self.blocks, rows), arguments, seed=self.seed)

    def launch_typed(self, name: str, arguments: Sequence[Any], rows: int = 1) -> None:
        bits = 8 * self.tensors.values(1).itemsize
        self.launch(f"{name}_{bits}", [*self.cut, *arguments], rows)

    def mark_units(self, ids: np.ndarray) -> Marked:
        """Mark units, or raise IndexError with the position of an id out of range."""
        marked, status = self.cleared(), np.zeros(1, np.uint64)
        slots = np.full(len(ids), -1, np.int64)
        self.launch("zenc_mark_units", [*self.cut, ids.astype(np.int64), len(ids), table([marked]), slots, status])
        self.rank([marked])
        if status[0] != 0:
            raise IndexError(int(~status[0]))
        assert np.array_equal(marked.ranks, ranks(marked.bitmap))
        return Marked(self, marked.bitmap, slots)

    def cleared(self) -> Piece:
        """Return the bitmap of all parts, with room for its ranks."""
        words = self.tensors.geometry.words
        return Piece(64 * words, np.zeros(words, np.uint64), rubbish(ranks_of(64 * words)))

    @property
    def packs_in_one_pass(self) -> bool:
        return self.tensors.geometry.width == 1 and not self.tensors.geometry.sizes

    def mark_dense(self, tensor: np.ndarray, clears: bool = False) -> Marked:
        geometry = self.tensors.geometry
        if self.packs_in_one_pass:
            parts = self.pack_values(tensor, 0, clears=clears)
            bitmap = np.zeros((geometry.parts, geometry.part_words), np.uint64)
            for row, part in zip(bitmap, parts, strict=True):
                row[: len(part.bitmap)] = part.bitmap
            bitmap = bitmap.reshape(-1)
        else:
            marked = self.cleared()
            bitmap = marked.bitmap
            self.launch_typed("zenc_mark_dense", [tensor, clears, table([marked])])
            self.rank([marked])
            assert np.array_equal(marked.ranks, ranks(bitmap))
        return Marked(self, bitmap, np.empty(0, np.int64))

    def pack_values(
        self, tensor: np.ndarray, room: int, divisor: int = 1, clears: bool = False, picks: bool = False
    ) -> list[Piece]:
        """Pack all parts with their marks, and up to ``room`` values of each, behind which rubbish has to stay.

        If it ``picks`` bits tell the kernel which values are not 0, and it finds others in place of zeros.
        """
        geometry, parts, taken = self.tensors.geometry, [], None
        if picks:
            tensor, taken = _with_bits(tensor)
        for part in range(geometry.parts):
            slots = geometry.slots_of(part)
            values = self.tensors.values(room + 1) if room else None
            parts.append(Piece(slots, rubbish(words_of(slots)), rubbish(ranks_of(slots)), values=values, count=room))
        words = 2 + max(words_of(part.slots) for part in parts) // 256
        work = np.zeros(words * geometry.parts, np.uint64)
        arguments = [table(parts), tensor, DTYPE_NUMBERS[self.tensors.dtype.name], divisor, clears, taken, work, words]
        self.launch_typed("zenc_pack_values", arguments, max(geometry.parts - 1, 1))
        for part in parts:
            assert np.array_equal(part.ranks, ranks(part.bitmap))
            part.count = set_between(part.ranks[0], part.ranks[-1])
            assert part.values is None or (part.values[min(room, part.count) :].view(np.uint8) == 0xA5).all()
        return parts

    def rank(self, pieces: Sequence[Piece], rows: int = 1) -> None:
        """Count the ranks of every piece by one launch of ``rows`` rows of blocks."""
        words = max(scan_words(RANKED_WORDS * (ranks_of(piece.slots) - 1) + 1) for piece in pieces)
        work = np.zeros(len(pieces) * words, np.uint64)
        self.launch("zenc_rank", [table(pieces), len(pieces), work, words], rows)

    def sort(self, keys: np.ndarray, digit: int) -> np.ndarray:
        """Sort ``keys`` by the bits of one digit, which begins at bit ``digit``."""
        counts, out = rubbish(-(-len(keys) // SORT_TILE) << DIGIT_BITS), rubbish(len(keys))
        self.launch("zenc_digit_counts", [keys, len(keys), digit, counts])
        self.launch("zenc_scan", [counts, len(counts), np.zeros(scan_words(len(counts)), np.uint64)])
        self.launch("zenc_sort_by_digit", [keys, len(keys), digit, counts, out])
        return out


@dataclass
class Marked:
    """The bitmap of all parts, and the slots of the ids that it was made of."""

    packer: Packer
    bitmap: np.ndarray
    slots: np.ndarray

    @cached_property
    def parts(self) -> list[Piece]:
        """Parts with their ranks, which are a slice of those of all parts, and their count."""
        geometry, ranks, pieces = self.packer.tensors.geometry, rubbish(ranks_of(64 * len(self.bitmap))), []
        self.packer.rank([Piece(64 * len(self.bitmap), self.bitmap, ranks)])
        each = geometry.part_words
        for part in range(geometry.parts):
            words = slice(part * each, part * each + words_of(geometry.slots_of(part)))
            kept = slice(words.start // RANKED_WORDS, words.start // RANKED_WORDS + ranks_of(geometry.slots_of(part)))
            pieces.append(Piece(geometry.slots_of(part), self.bitmap[words], ranks[kept]))
        for piece in pieces:
            piece.count = set_between(piece.ranks[0], piece.ranks[-1])
            piece.values = self.packer.tensors.values(piece.count + 1)  # a row of rubbish that has to stay
        return pieces

    @property
    def dtype(self) -> int:
        return DTYPE_NUMBERS[self.packer.tensors.dtype.name]

    @property
    def distinct(self) -> int:
        return sum(piece.count for piece in self.parts)

    def place_units(self, values: np.ndarray, divisor: int = 1) -> np.ndarray:
        """Place all rows, part by part."""
        n, arguments = len(self.slots), [table(self.parts), self.slots]
        if n == self.distinct:
            self.packer.launch_typed("zenc_place_once", [*arguments, n, values, self.dtype, divisor])
        else:
            keys, shift, starts, popular = self.grouped()
            rows, distinct = -(-values.shape[1] // 64) if values.size else 1, np.array([self.distinct], np.uint64)
            inputs = [*arguments, values, self.dtype, divisor, keys, shift, starts, distinct, popular]
            self.packer.launch_typed("zenc_place_summed", inputs, rows)
        return self.joined()

    def place_dense(self, tensor: np.ndarray, divisor: int = 1) -> np.ndarray:
        rows = self.packer.tensors.geometry.parts
        self.packer.launch_typed("zenc_place_dense", [table(self.parts), tensor, self.dtype, divisor], rows)
        return self.joined()

    def joined(self) -> np.ndarray:
        for piece in self.parts:
            assert (piece.values[-1:].view(np.uint8) == 0xA5).all()
        return np.concatenate([piece.values[:-1] for piece in self.parts])

    def grouped(self, most_of_few: int = FEW_INPUTS) -> tuple[np.ndarray, int, np.ndarray, np.ndarray]:
        """Return (sorted keys, bits of a position, where each row begins, the list of popular rows)."""
        packer, n, bits = self.packer, len(self.slots), (self.distinct - 1).bit_length()
        shift, keys = (n - 1).bit_length(), rubbish(n)
        starts, popular = rubbish(self.distinct + 1), rubbish(1 + n // (MOST_INPUTS + 1))
        inputs = [*packer.cut, table(self.parts), self.slots, n, shift]
        if n <= most_of_few:
            grouped = [*inputs, keys, starts, popular]
            packer.device.launch("zenc_group_few", (1, 1), grouped, seed=packer.seed)
            return keys, shift, starts, popular
        packer.launch("zenc_make_keys", [*inputs, keys])
        for digit in range(shift, shift + bits, DIGIT_BITS):
            keys = packer.sort(keys, digit)
        popular[0] = 0
        packer.launch("zenc_row_starts", [keys, n, shift, starts, popular])
        return keys, shift, starts, popular


def _with_bits(tensor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``tensor`` [units, 1] with other values in place of zeros, and bits of those that are no zeros."""
    known = tensor.view(f"u{tensor.itemsize}") << 1 != 0
    bits = np.packbits(known, bitorder="little")
    padded = np.pad(bits, (0, -len(bits) % 8)).view(np.uint64)
    return np.where(known, tensor, tensor.dtype.type(5)), padded
