"""Expected bytes of index sets in memory under ``balanced by holders``, at random units.

A rank keeps to the end, as bitmaps of all units: the index set of every rank, its own among them, and their union;
the owner of each unit that somebody holds, in 2 bytes; and of each part that it sums, which slots each rank holds.
"""

from __future__ import annotations

import numpy as np

from zenc.plan.expressions import Ints
from zenc.verify.provenance import Deliveries

OWNER_BYTES = 2


def bitmap_bytes(slots: int) -> int:
    """A bit for each of ``slots``, in words of 64."""
    return -(-slots // 64) * 8


class IndexSets:
    """The bytes of each rank's index sets, while a plan is played: ``held`` [size].

    ``present`` is how many of ``units`` somebody holds.
    """

    def __init__(self, size: int, units: int, present: int) -> None:
        self.size, self.present = size, present
        self.set_bytes = bitmap_bytes(units)
        self.part_bytes = size * bitmap_bytes(-(-present // size))
        self.held: Ints = np.full(size, self.set_bytes, dtype=np.int64)
        self.agreed = False
        self.summed = np.zeros((size, size), dtype=bool)

    def announce(self, moved: Deliveries) -> None:
        """Sets of other ranks arrive."""
        np.add.at(self.held, moved.dst, moved.contributors * self.set_bytes)

    def agree(self) -> None:
        """All sets are there: their union, and the owners."""
        if not self.agreed:
            self.held = self.held + self.set_bytes + self.present * OWNER_BYTES
            self.agreed = True

    def push(self, moved: Deliveries) -> None:
        """Parts arrive that are summed."""
        before = self.summed.sum(axis=1)
        self.summed[moved.dst, moved.part] = True
        self.held = self.held + (self.summed.sum(axis=1) - before) * self.part_bytes
