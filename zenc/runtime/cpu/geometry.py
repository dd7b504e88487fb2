"""The geometry of a tensor: units x width values, slots in ranges called parts.

    part of slot s = s / part_slots          local slot = s mod part_slots
    bitmap         = parts x part_words words of 64 bits; bit b of word w of a part = its local slot 64 w + b
                     part_words is a multiple of RANKED_WORDS, part_slots one of block

Parts are equal but for the last ones. Under hashing, and where they are cut by encoded sizes, each has a size of its
own, and ``part_slots`` is that of the largest: behind the others there are gaps, numbers that are no slots. Kernels cut
by ``templates/shared/zenc/geometry.h``.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

from zenc.errors import Diagnostic, InternalError, TensorError
from zenc.scheme.model import Contiguous, HierarchicalHash, Mapping, Permutation
from zenc.wire.constants import MOST_VALUES, RANKED_WORDS
from zenc.wire.formats import slots_of
from zenc.wire.structs import CUT, ctypes_fields

WORD_BITS = 64
MOST_WORDS = MOST_VALUES // 16


def words_of(slots: int) -> int:
    """Return the 64-bit words of a bitmap of ``slots`` bits."""
    return -(-slots // WORD_BITS)


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of a mapping at ``address``, in memory that ``keep`` owns.

    Tables of hashing have 8 bytes a unit, and in ``sizes`` the slots of each part; those of permuted blocks 8 bytes a
    block; those of ranges 16 bytes a part, and ``firsts`` are the first units of all, where they were cut in Python.
    """

    address: int
    sizes: tuple[int, ...]
    keep: object
    firsts: tuple[int, ...] = ()


class CutArgs(ctypes.Structure):
    """Fields of CUT."""

    _fields_ = ctypes_fields(CUT)


@dataclass(frozen=True, slots=True)
class Geometry:
    """A tensor of ``units`` x ``width`` values cut into ``parts`` parts by a ``mapping``. Some may be short or empty.

    Raises TensorError ``tensor-too-large`` from 2^62 values (or bits of all bitmaps) on.
    """

    units: int
    width: int
    parts: int
    tables: Tables | None = None
    block: int = 1
    mapping: Mapping = field(default_factory=Contiguous)
    cut: Any = field(init=False, repr=False, compare=False)
    """The argument of kernels: a reference to a ``CutArgs``, which it keeps."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cut", ctypes.byref(self._made_cut()))
        if self.units < 0 or self.width < 0 or self.parts < 1:
            raise InternalError(Diagnostic("internal", f"no tensor is cut like {self!r}"))
        if self.units * max(self.width, 1) >= MOST_VALUES or self.words >= MOST_WORDS:
            raise TensorError(
                Diagnostic(
                    "tensor-too-large",
                    f"{self.units} units of {self.width} values in {self.parts} parts are more than 2^62 values",
                )
            )

    def _made_cut(self) -> CutArgs:
        tables, of = self.tables.address if self.tables else None, self.mapping
        cut = CutArgs(self.units, self.width, self.parts, tables, block=self.block)
        if isinstance(of, Permutation | HierarchicalHash):
            cut.seed = of.seed
        if isinstance(of, HierarchicalHash):
            cut.k, cut.r1, cut.r2 = of.k, of.r1, of.r2
        return cut

    @property
    def sizes(self) -> tuple[int, ...]:
        """The slots of each part where parts have different sizes, otherwise empty."""
        return self.tables.sizes if self.tables else ()

    @property
    def part_slots(self) -> int:
        """The slots of the largest part: ceil(blocks / parts) blocks, or its size by hashing."""
        return max(self.sizes) if self.sizes else slots_of(self.units, self.parts, 0, self.block)

    @property
    def part_words(self) -> int:
        """Words of the bitmap from one part to the next, the same for all parts: whole groups of ``RANKED_WORDS``."""
        return -(-words_of(self.part_slots) // RANKED_WORDS) * RANKED_WORDS

    @property
    def words(self) -> int:
        """Words of the bitmap of all parts."""
        return self.parts * self.part_words

    def slots_of(self, part: int) -> int:
        """Return the slots of ``part``: ``part_slots``, or the rest of the units; or its size by hashing."""
        return self.sizes[part] if self.sizes else slots_of(self.units, self.parts, part, self.block)
