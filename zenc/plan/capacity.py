"""The memory that every rank needs, at the most, to be expected at a stated density.

    Need = rank buffers phase number                        # the greatest sum of its buffers, and in which step

Counted are the gradient (values, and indices of 8 bytes), the segments that the rank holds (values, and a bitmap of
the slots), the messages that it sends and receives in a step, and in the end the result. Not counted are the model, its
activations, what torch keeps for itself, and work space of kernels that is freed in between. Where a push is dense,
segments hold all of their slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from zenc.errors import Diagnostic
from zenc.plan.evaluate import Ints
from zenc.plan.expected import Floats, Weigher
from zenc.plan.formats import DTYPE_BYTES
from zenc.plan.model import Phase, Plan
from zenc.plan.provenance import Deliveries
from zenc.plan.quantities import size_text
from zenc.scheme.model import Format
from zenc.topology.model import Topology

INDEX_BYTES = 8
BUFFERS = ("gradient", "segments", "messages", "result")


@dataclass(frozen=True, slots=True)
class Need:
    """What ``rank`` needs in step ``number`` of ``phase``; 0 is before the first, and after the last.

    ``buffers`` are the bytes of each of BUFFERS.
    """

    rank: int
    buffers: tuple[int, ...]
    phase: str
    number: int

    @property
    def bytes(self) -> int:
        return sum(self.buffers)

    @property
    def when(self) -> str:
        return f"{self.phase}, step {self.number}" if self.number else self.phase

    def text(self) -> str:
        """``gradient 2.7 MB, segments 40 MB``: what there is of them."""
        named = zip(BUFFERS, self.buffers, strict=True)
        return ", ".join(f"{name} {size_text(bytes)}" for name, bytes in named if bytes)


@dataclass(frozen=True, slots=True)
class Capacity:
    """``needs[rank]``, and what the topology has: None where it does not say."""

    topology: Topology
    needs: tuple[Need, ...]

    @property
    def greatest(self) -> Need:
        return max(self.needs, key=lambda need: need.bytes)

    def to_json(self) -> dict[str, Any]:
        """What ranks and hosts need and have, in bytes."""
        return {
            "ranks": [
                {
                    "rank": need.rank,
                    "needs": need.bytes,
                    "has": self.topology.memory(need.rank),
                    "when": need.when,
                    "buffers": dict(zip(BUFFERS, need.buffers, strict=True)),
                }
                for need in self.needs
            ],
            "hosts": [
                {"host": host.name, "needs": self.of_host(host.ranks), "has": host.memory}
                for host in self.topology.hosts
            ],
        }

    def of_host(self, ranks: tuple[int, ...]) -> int:
        """What the ranks of a machine need together, where their buffers lie in its memory."""
        return sum(self.needs[rank].bytes for rank in ranks)

    def problems(self) -> list[Diagnostic]:
        """The devices and the machines whose memory is too small: one diagnostic for all of each."""
        return [*self._devices(), *self._hosts()]

    def _devices(self) -> list[Diagnostic]:
        small = [
            (need, has)
            for need in self.needs
            if (has := self.topology.memory(need.rank)) is not None and has < need.bytes
        ]
        if not small:
            return []
        need, has = max(small, key=lambda each: each[0].bytes - each[1])
        message = f"rank {need.rank} needs {size_text(need.bytes)} of memory ({need.when}), and has {size_text(has)}"
        more = (need.text(), *((f"so do {len(small) - 1} other ranks",) if len(small) > 1 else ()))
        return [Diagnostic("memory-exceeded", message, None, more, _ADVICE)]

    def _hosts(self) -> list[Diagnostic]:
        needs = [(host, self.of_host(host.ranks)) for host in self.topology.hosts]
        small = [(host, bytes) for host, bytes in needs if host.memory is not None and host.memory < bytes]
        if not small:
            return []
        host, bytes = max(small, key=lambda each: each[1])
        has = size_text(host.memory or 0)
        message = f"the ranks of {host.name} need {size_text(bytes)} of memory together, and it has {has}"
        more = (f"so do those of {len(small) - 1} other machines",) if len(small) > 1 else ()
        return [Diagnostic("memory-exceeded", message, None, more, _ADVICE)]


_ADVICE = "send sparser gradients, cut the tensor in more parts, or in smaller tensors"


class Ledger:
    """Keeps account of every rank's buffers while a plan is played: ``observe`` is told of every round."""

    def __init__(self, plan: Plan, size: int, weigher: Weigher) -> None:
        parts = plan.parts(size)
        self.plan, self.size, self.weigher = plan, size, weigher
        self.filled = any(phase.format is Format.DENSE for phase in plan.pushes)
        self.table = np.array([self._segment(k) for k in range(size + 1)], dtype=np.int64)
        self.count = np.ones((size, parts), dtype=np.int64)
        self.held = np.full(size, parts * self.table[1])
        self.gradient = self._coo(1)
        nothing = np.zeros(size, dtype=np.int64)
        self.most = np.stack((nothing + self.gradient, self.held, nothing, nothing))
        self.moments: list[tuple[str, int]] = [("before the first step", 0)]
        self.when = np.zeros(size, dtype=np.int64)

    def observe(self, kind: str, phase: Phase, number: int, moved: Deliveries) -> None:
        weights = self._weights(phase, moved)
        messages = np.bincount(moved.src, weights, self.size) + np.bincount(moved.dst, weights, self.size)
        if kind == "announce":
            pass  # index sets are bits beside values
        elif kind == "pull":
            self._replace(moved)
        elif self.plan.one_shot(phase):
            self._keep(moved)
        else:
            self._merge(moved)
        self._note(messages.astype(np.int64), 0, self.plan.name_of(kind, phase), number)

    def capacity(self, topology: Topology) -> Capacity:
        """What every rank needed at the most."""
        self._note(np.zeros(self.size, dtype=np.int64), self._coo(self.size), "after the last step", 0)
        needs = zip(range(self.size), self.most.T.tolist(), self.when.tolist(), strict=True)
        return Capacity(topology, tuple(Need(rank, tuple(most), *self.moments[when]) for rank, most, when in needs))

    def _note(self, messages: Ints, result: int, phase: str, number: int) -> None:
        """The buffers of all ranks now; what a rank has more of than ever before is kept."""
        now = np.stack((np.full_like(messages, self.gradient), self.held, messages, np.full_like(messages, result)))
        more = now.sum(axis=0) > self.most.sum(axis=0)
        self.when[more] = len(self.moments)
        self.moments.append((phase, number))
        self.most = np.where(more, now, self.most)

    def _weights(self, phase: Phase, moved: Deliveries) -> Floats:
        rows = np.arange(len(moved.src))
        return self.weigher.messages(phase, moved, rows, len(rows))

    def _merge(self, moved: Deliveries) -> None:
        """What arrives is added to what is there."""
        cells, inverse = np.unique(moved.dst * self.count.shape[1] + moved.part, return_inverse=True)
        arrived = np.bincount(inverse.reshape(-1), moved.contributors).astype(np.int64)
        self._set(cells, self.count.reshape(-1)[cells] + arrived)

    def _keep(self, moved: Deliveries) -> None:
        """What arrives stays apart: piece by piece."""
        np.add.at(self.count, (moved.dst, moved.part), moved.contributors)
        each = self.table[moved.contributors // moved.pieces] * moved.pieces
        np.add.at(self.held, moved.dst, each)

    def _replace(self, moved: Deliveries) -> None:
        """What arrives is complete."""
        cells = np.unique(moved.dst * self.count.shape[1] + moved.part)
        self._set(cells, np.full_like(cells, self.size))

    def _set(self, cells: Ints, counts: Ints) -> None:
        """Ranks and parts, as places in ``count``, hold merged segments of so many contributors now."""
        flat = self.count.reshape(-1)
        np.add.at(self.held, cells // self.count.shape[1], self.table[counts] - self.table[flat[cells]])
        flat[cells] = counts

    def _units(self, contributors: int, of: int) -> int:
        return round(of * (1 - (1 - self.weigher.density) ** contributors))

    def _segment(self, contributors: int) -> int:
        """A part in memory: a bitmap of its slots, and the values of those that are there."""
        slots = self.weigher.slots
        there = slots if self.filled else self._units(contributors, slots)
        return -(-slots // 64) * 8 + there * self._unit_bytes

    def _coo(self, contributors: int) -> int:
        """A sparse tensor: indices and values."""
        return self._units(contributors, self.weigher.units) * (INDEX_BYTES + self._unit_bytes)

    @property
    def _unit_bytes(self) -> int:
        return self.weigher.width * DTYPE_BYTES[self.weigher.dtype]
