"""Reuse within a step: one index serves all copies of a segment, one merge all segments of a part that meet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from zenc.analysis.expected_bytes import Floats, kinds_of
from zenc.plan.expressions import Ints
from zenc.plan.ir import Phase, PhaseKind, Plan
from zenc.simulator.contributor_counts import DeliveryCounts, Small
from zenc.wire.mix import Words, mix

FEW = 1 << 17
"""Rows that are sorted; of more, every place of every rank is written down."""


@dataclass(frozen=True, slots=True, eq=False)
class SegmentCounts:
    """Segments of one step, [ranks, 4]: that a rank sends, how many of these differ, that come, and in how many parts.

    ``contributors``: all different numbers of ranks that contributed to a segment.
    """

    by_rank: Floats
    contributors: frozenset[int] = frozenset()

    @property
    def alike(self) -> bool:
        """Whether all ranks have the same."""
        return bool((self.by_rank == self.by_rank[:1]).all())

    @property
    def colours(self) -> Words:
        """A word for each rank, [ranks], that is the same of ranks with the same counts."""
        found = np.zeros(len(self.by_rank), dtype=np.uint64)
        for column in self.by_rank.T:
            found = mix(found + column.astype(np.uint64))
        return found

    def of(self, member: Ints) -> SegmentCounts:
        """Those of some ranks: of one of each class."""
        return replace(self, by_rank=self.by_rank[member])


class SegmentCounter:
    """Counts what passes of one step of ``plan`` among ``size`` ranks."""

    def __init__(self, plan: Plan, size: int, phase: Phase) -> None:
        parts = plan.parts_in(phase, size)
        self._sent, self._came = _End(size, parts), _End(size, parts, once=phase.kind is PhaseKind.PULL)
        self._contributors: frozenset[int] = frozenset()

    def watch(self, carried: Iterator[DeliveryCounts]) -> Iterator[DeliveryCounts]:
        """All of ``carried``, counted."""
        for some in carried:
            self._contributors |= frozenset(kinds_of(some.contributors))
            self._sent.see(some.src, some.part, some.pieces)
            self._came.see(some.dst, some.part, some.pieces)
            yield some

    @property
    def counts(self) -> SegmentCounts:
        """All that was counted."""
        (sent, written, _), (came, _, parts) = self._sent.columns(), self._came.columns()
        return SegmentCounts(np.stack((sent, written, came, parts), axis=1).astype(np.float64), self._contributors)


class _End:
    """Senders, or receivers, of which each has to do with a part ``once``, or any number of times."""

    def __init__(self, size: int, parts: int, once: bool = False) -> None:
        self._size, self._parts, self._once = size, parts, once
        self._pieces = self._different = self._places = np.zeros(size, dtype=np.int64)
        self._there: Small | None = None

    def see(self, rank: Ints, part: Ints, pieces: Small) -> None:
        """Take some rows of the step; few only where there are no others."""
        number, weights = np.bincount(rank, minlength=self._size), pieces if pieces.max(initial=0) > 1 else None
        self._pieces = self._pieces + np.bincount(rank, weights, self._size).astype(np.int64)
        if self._once or (self._there is None and number.max(initial=0) <= 1):
            self._different, self._places = self._pieces, self._places + number
        elif self._there is None and len(rank) < FEW:
            _, first = np.unique(rank * self._parts + part, return_index=True)
            self._different = np.bincount(rank[first], pieces[first], self._size).astype(np.int64)
            self._places = np.bincount(rank[first], minlength=self._size)
        else:
            self._there = np.zeros(self._size * self._parts, np.int32) if self._there is None else self._there
            self._there[rank * self._parts + part] = pieces

    def columns(self) -> tuple[Ints, Ints, Ints]:
        """Of each rank the pieces, those of them that are of different parts, and of how many, [ranks] each."""
        if self._there is None:
            return self._pieces, self._different, self._places
        by_rank = self._there.reshape(self._size, self._parts)
        return self._pieces, by_rank.sum(axis=1), np.count_nonzero(by_rank, axis=1)
