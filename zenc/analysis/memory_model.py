"""Expected bytes of every buffer of every rank, step by step, at a stated density.

Counted are the gradient (values, and indices of 8 bytes), the segments that the rank holds (values, and a bitmap of
the slots), the messages that it sends and receives in a step, and in the end the result. Not counted are the model, its
activations, what torch keeps for itself, and work space of kernels that is freed in between. Where a push is dense,
segments hold all of their slots. By holders also the index sets of all ranks (``zenc.analysis.holder_memory``); the
values of the gradient are then there twice, as one segment and in parts.
"""

from __future__ import annotations

import math

import numpy as np

from zenc.analysis.expected_bytes import ExpectedBytes, Floats
from zenc.analysis.holder_memory import IndexSets, bitmap_bytes
from zenc.analysis.memory import MemoryPeak, RankMemory
from zenc.plan.expressions import Ints
from zenc.plan.ir import Phase, PhaseKind, Plan
from zenc.scheme.model import Format
from zenc.topology.model import Topology
from zenc.verify.provenance import Deliveries

INDEX_BYTES = 8


class MemoryModel:
    """Keeps account of every rank's buffers while a plan is played: ``observe`` is told of every round."""

    def __init__(self, plan: Plan, size: int, expected: ExpectedBytes) -> None:
        parts = plan.parts(size)
        self.plan, self.size, self.expected = plan, size, expected
        self.filled = any(phase.format is Format.DENSE for phase in plan.of(PhaseKind.PUSH))
        self.table = np.array([self._segment(k) for k in range(size + 1)], dtype=np.int64)
        self.count = np.ones((size, parts), dtype=np.int64)
        self.bytes = np.full((size, parts), self.table[1])
        self.phase: Phase | None = None
        self.own = parts * int(self.table[1])
        self.sets = IndexSets(size, expected.units, self._units(size, expected.units)) if plan.announces else None
        if self.sets:  # the gradient is packed as one segment, whose bitmap is the index set
            self.own = self._units(1, expected.units) * self._unit_bytes
        self.held = np.full(size, self.own)
        self.gradient = self._coo(1)
        nothing = np.zeros(size, dtype=np.int64)
        self.most = self._now(nothing, nothing)
        self.moments: list[tuple[str, int]] = [("before the first step", 0)]
        self.when = np.zeros(size, dtype=np.int64)

    def observe(self, phase: Phase, number: int, moved: Deliveries) -> None:
        """Take what moved in step ``number`` of ``phase``."""
        weights = self._weights(phase, moved)
        messages = np.bincount(moved.src, weights, self.size) + np.bincount(moved.dst, weights, self.size)
        if phase is not self.phase:
            self._merge_complete()
            self.phase = phase
        if self.sets:
            self._take_sets(self.sets, phase.kind, moved)
        if phase.kind is PhaseKind.ANNOUNCE:
            pass  # brings no values
        elif phase.kind is PhaseKind.PULL:
            self._replace(moved)
        elif phase.keeps_apart:
            self._keep(moved)
        else:
            self._merge(moved)
        self._note(messages.astype(np.int64), 0, phase.name, number)

    def capacity(self, topology: Topology) -> MemoryPeak:
        """The most that every rank needed."""
        self._merge_complete()
        if self.sets:
            self._agree(self.sets)
        self._note(np.zeros(self.size, dtype=np.int64), self._coo(self.size), "after the last step", 0)
        needs = zip(range(self.size), self.most.T.tolist(), self.when.tolist(), strict=True)
        return MemoryPeak(
            topology, tuple(RankMemory(rank, tuple(most), *self.moments[when]) for rank, most, when in needs)
        )

    def _note(self, messages: Ints, result: int, phase: str, number: int) -> None:
        """The buffers of all ranks now; what a rank has more of than ever before is kept."""
        now = self._now(messages, np.full_like(messages, result))
        more = now.sum(axis=0) > self.most.sum(axis=0)
        self.when[more] = len(self.moments)
        self.moments.append((phase, number))
        self.most = np.where(more, now, self.most)

    def _now(self, messages: Ints, result: Ints) -> Ints:
        """[buffers, size]: what all ranks have of each now."""
        sets = self.sets.held if self.sets else np.zeros_like(messages)
        return np.stack((np.full_like(messages, self.gradient), self.held, sets, messages, result))

    def _take_sets(self, sets: IndexSets, kind: PhaseKind, moved: Deliveries) -> None:
        if kind is PhaseKind.ANNOUNCE:
            sets.announce(moved)
        else:
            self._agree(sets)
        if kind is PhaseKind.PUSH:
            sets.push(moved)

    def _agree(self, sets: IndexSets) -> None:
        """The gradient is cut in parts, beside the segment that it was."""
        if not sets.agreed:
            sets.agree()
            self.held = self.held + self.own

    def _weights(self, phase: Phase, moved: Deliveries) -> Floats:
        rows = np.arange(len(moved.src))
        return self.expected.delivered(phase, moved, rows, len(rows))

    def _merge(self, moved: Deliveries) -> None:
        """What arrives is added to what is there."""
        cells, inverse = np.unique(moved.dst * self.count.shape[1] + moved.part, return_inverse=True)
        arrived = np.bincount(inverse.reshape(-1), moved.contributors).astype(np.int64)
        self._set(cells, self.count.reshape(-1)[cells] + arrived)

    def _keep(self, moved: Deliveries) -> None:
        """What arrives stays apart: piece by piece."""
        np.add.at(self.count, (moved.dst, moved.part), moved.contributors)
        each = self.table[moved.contributors // moved.pieces] * moved.pieces
        np.add.at(self.bytes, (moved.dst, moved.part), each)
        np.add.at(self.held, moved.dst, each)

    def _merge_complete(self) -> None:
        """When a push ends, what was kept apart and is of all ranks is merged."""
        cells = np.flatnonzero((self.count == self.size) & (self.bytes != self.table[self.size]))
        self._set(cells, np.full_like(cells, self.size))

    def _replace(self, moved: Deliveries) -> None:
        """What arrives is complete."""
        cells = np.unique(moved.dst * self.count.shape[1] + moved.part)
        self._set(cells, np.full_like(cells, self.size))

    def _set(self, cells: Ints, counts: Ints) -> None:
        """Ranks and parts, as places in ``count``, hold merged segments of so many contributors now."""
        bytes = self.bytes.reshape(-1)
        np.add.at(self.held, cells // self.count.shape[1], self.table[counts] - bytes[cells])
        self.count.reshape(-1)[cells], bytes[cells] = counts, self.table[counts]

    def _units(self, contributors: int, of: int) -> int:
        return round(of * float(self.expected.profile.union(contributors)))

    def _segment(self, contributors: int) -> int:
        """A part in memory: the values of slots that are there; and a bitmap of these, where no index sets say it."""
        slots = math.ceil(self.expected.slots)
        there = slots if self.filled else self._units(contributors, slots)
        bitmap = 0 if self.plan.announces else bitmap_bytes(slots)
        return bitmap + there * self._unit_bytes

    def _coo(self, contributors: int) -> int:
        """A sparse tensor: indices and values."""
        return self._units(contributors, self.expected.units) * (INDEX_BYTES + self._unit_bytes)

    @property
    def _unit_bytes(self) -> int:
        return self.expected.unit_bytes
