"""Counting simulation of a proved plan: contributors and pieces of each message.

    Played         = CountedStep*
    CountedStep    = Phase number DeliveryCounts*               # steps in which nothing moves are left out
    DeliveryCounts = (src dst part pieces contributors owned)*    # arrays, one entry for every part of every move

In a correct plan no contribution arrives twice, so the contributors of merged pieces add up, and numbers do where the
proof (``zenc.verify.proof``) needs sets. So thousands of ranks are a matter of seconds: moves come a statement at a
time and are forgotten; two numbers are kept for every rank and part.

Within a step one index serves all copies of a segment, and one merge all segments of a part that meet: SegmentCounts
has these numbers of each rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from zenc.analysis.expected_bytes import AnyInts, DeliveryCounts, Floats, Small, TierCounts, kinds_of
from zenc.plan.expressions import Ints
from zenc.plan.ir import Phase, PhaseKind, Plan
from zenc.plan.unroll import Round, joined, stream
from zenc.verify.provenance import Deliveries, by_part
from zenc.wire.mix import Words, mix

MOST_ROWS = 1 << 20
"""Most parts of moves that are treated together."""


@dataclass(frozen=True, slots=True, eq=False)
class CountedStep:
    """A step of ``phase``, the ``number``-th of it that moves anything; ``carried`` is used up once."""

    phase: Phase
    number: int
    carried: Iterator[DeliveryCounts]


def play(plan: Plan, size: int) -> Iterator[CountedStep]:
    """Yield all steps of ``plan`` among ``size`` ranks, in order; each must be used up before the next one.

    ``plan`` counts as proved. Raises VerificationError as ``zenc.plan.unroll.expand`` does.
    """
    tiers = TierCounts(plan, size)
    state, pushes = _State(size, plan.parts(size), tiers), 0
    for phase, steps in stream(plan, size):
        sets = phase.kind is PhaseKind.ANNOUNCE
        of_phase = _State(size, plan.parts_in(phase, size), tiers) if sets else state
        if not phase.completes:
            of_phase.begin(phase.keeps_apart, later=pushes > 0 and not sets)
        pushes += phase.kind is PhaseKind.PUSH
        number = 0
        for step in steps:
            first = next(step, None)
            if first is None:
                continue
            number += 1
            carried = _complete(first, step, size) if phase.completes else of_phase.step(first, step)
            yield CountedStep(phase, number, map(partial(tiers.of, phase), carried))


class _State:
    """The contributors and pieces of every rank's segments of every part, as [size * parts].

    ``begun`` are the contributors when a one-shot phase began. ``owners`` says where the contribution of the rank that
    owns the part is among them: that with its number, or the first rank of the member of a group that has it.
    """

    def __init__(self, size: int, parts: int, tiers: TierCounts) -> None:
        self.size, self.parts, self.tiers = size, parts, tiers
        self.contributors: Small = np.ones(size * parts, dtype=np.int32)
        self.owners = np.zeros(size * parts, dtype=np.int8)
        every = np.arange(parts)
        owner = tiers.owner(every) * tiers.inner
        self.owners[(owner * parts + every)[owner < size]] = 1
        self.one_shot = False
        self.pieces = self.begun = self.contributors

    def begin(self, one_shot: bool, later: bool) -> None:
        """Open a phase, which is ``later`` than another push."""
        self.one_shot = one_shot
        if one_shot:
            self.begun = self.contributors.copy()
            self.pieces = np.ones_like(self.contributors) if later else self.contributors.copy()

    def step(self, first: Round, others: Iterator[Round]) -> Iterator[DeliveryCounts]:
        """Play one step of a push: all its moves see the state before it."""
        arrived: list[tuple[Ints, Small, Small, npt.NDArray[np.int8]]] = []
        for rows in _rows(first, others):
            at = rows.src * self.parts + rows.part
            held, pieces, owned = self.contributors[at], np.ones(len(at), dtype=np.int32), self.owners[at]
            if self.one_shot:
                held, pieces, owned = self._pieces(at, rows.part, rows.origin, held, owned)
            arrived.append((rows.dst * self.parts + rows.part, held, pieces, owned))
            each = np.asarray(held // pieces, dtype=np.int32)
            yield DeliveryCounts(rows.src, rows.dst, rows.part, pieces, each, owned.astype(np.int32))
        for key, held, pieces, owned in arrived:
            np.add.at(self.contributors, key, held)
            np.add.at(self.owners, key, owned)
            if self.one_shot:
                np.add.at(self.pieces, key, pieces)

    def _pieces(
        self, at: Ints, part: Ints, origin: Ints, held: Small, owned: npt.NDArray[np.int8]
    ) -> tuple[Small, Small, npt.NDArray[np.int8]]:
        """Return the pieces that are kept apart: all of them, or the one of ``origin``."""
        limited, pieces = origin >= 0, self.pieces[at]
        if not limited.any():
            return held, pieces, owned
        begun = self.begun[np.where(limited, origin, 0) * self.parts + part]
        mine = np.where(limited, origin // self.tiers.inner == self.tiers.owner(part), owned).astype(np.int8)
        return np.where(limited, begun, held), np.where(limited, np.int32(1), pieces), mine


def _complete(first: Round, others: Iterator[Round], size: int) -> Iterator[DeliveryCounts]:
    """Yield a step of a pull: every part has the contributions of all."""
    for rows in _rows(first, others):
        one = np.ones(len(rows.src), dtype=np.int32)
        yield DeliveryCounts(rows.src, rows.dst, rows.part, one, one * np.int32(size), one)


def _rows(first: Round, others: Iterator[Round]) -> Iterator[Deliveries]:
    """Yield the moved parts, about MOST_ROWS at a time; a rank's sends in few moves stay together."""
    waiting, count = [first], len(first)
    for moves in others:
        if count > MOST_ROWS:
            yield from _cut(joined(waiting))
            waiting, count = [], 0
        waiting.append(moves)
        count += len(moves)
    yield from _cut(joined(waiting))


def _cut(moves: Round) -> Iterator[Deliveries]:
    rows = moves.last - moves.first + 1
    if rows.sum() <= 2 * MOST_ROWS:
        yield by_part(moves)
        return
    turn = np.cumsum(np.bincount(moves.src, rows)) // MOST_ROWS
    for number in np.unique(turn[moves.src]).tolist():
        yield by_part(moves.take(turn[moves.src] == number))


FEW = 1 << 17
"""The number of rows up to which they are sorted; of more, every place of every rank is written down."""


@dataclass(frozen=True, slots=True, eq=False)
class SegmentCounts:
    """Segments of one step, [ranks, 4]: sent by a rank, different among these, received, and the parts of these.

    ``contributors``: all different numbers of ranks that contributed to a segment.
    """

    by_rank: Floats
    contributors: frozenset[int] = frozenset()

    @property
    def alike(self) -> bool:
        """Return whether all ranks have the same counts."""
        return bool((self.by_rank == self.by_rank[:1]).all())

    @property
    def colours(self) -> Words:
        """A word for each rank, [ranks], equal for ranks with equal counts."""
        found = np.zeros(len(self.by_rank), dtype=np.uint64)
        for column in self.by_rank.T:
            found = mix(found + column.astype(np.uint64))
        return found

    def of(self, member: Ints) -> SegmentCounts:
        """Return the counts of ``member`` [n], one rank of each class."""
        return replace(self, by_rank=self.by_rank[member])


class SegmentCounter:
    """A counter of the deliveries in one step of ``plan`` among ``size`` ranks."""

    def __init__(self, plan: Plan, size: int, phase: Phase) -> None:
        parts = plan.parts_in(phase, size)
        self._sent, self._came = _End(size, parts), _End(size, parts, once=phase.completes)
        self._contributors: frozenset[int] = frozenset()

    def watch(self, carried: Iterator[DeliveryCounts]) -> Iterator[DeliveryCounts]:
        """Yield all of ``carried``, and count it."""
        for some in carried:
            self._contributors |= frozenset(kinds_of(some.contributors))
            self._sent.see(some.src, some.part, some.pieces)
            self._came.see(some.dst, some.part, some.pieces)
            yield some

    @property
    def counts(self) -> SegmentCounts:
        """The counts so far, [ranks]."""
        (sent, written, _), (came, _, parts) = self._sent.columns(), self._came.columns()
        return SegmentCounts(np.stack((sent, written, came, parts), axis=1).astype(np.float64), self._contributors)


class _End:
    """Senders, or receivers; each of them has to do with a part ``once``, or any number of times."""

    def __init__(self, size: int, parts: int, once: bool = False) -> None:
        self._size, self._parts, self._once = size, parts, once
        self._pieces = self._different = self._places = np.zeros(size, dtype=np.int64)
        self._there: Small | None = None

    def see(self, rank: Ints, part: Ints, pieces: AnyInts) -> None:
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
        """Return each rank's pieces, those of different parts, and the number of parts, [ranks] each."""
        if self._there is None:
            return self._pieces, self._different, self._places
        by_rank = self._there.reshape(self._size, self._parts)
        return self._pieces, by_rank.sum(axis=1), np.count_nonzero(by_rank, axis=1)
