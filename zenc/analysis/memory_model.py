"""Expected bytes of every buffer of every rank, step by step, at a stated density; and the most that each needs.

    RankMemory = rank buffers phase number                        # the greatest sum of its buffers, and in which step

The model counts the gradient (values, and indices of 8 bytes), the segments that the rank holds (values, and a bitmap
of the slots) up to the step that uses them last, the messages that it sends and receives in a step, and in the end the
result. It leaves out the network's parameters and activations, torch's own memory, and work space of kernels that is
freed in between. Where a push is dense, segments hold all of their slots.

Schemes that select or encode take a dense gradient, which becomes the result; beside it a linear selection makes a
shorter one. Vectors kept by name are there twice, before and after, in float32. A segment that travels
encoded has its bytes beside the values that they mean, for as long as it is held. By holders the values of the gradient
are there twice, as one segment and in parts; and a rank keeps to the end, as bitmaps of all units: the index set of
every rank, its own among them, and their union; the owner of each unit that somebody holds, in 2 bytes; and of each
part that it sums, which slots each rank holds. Of a directory it keeps the sets of its part until owners are chosen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from zenc.analysis.expected_bytes import OWNER_BYTES, ExpectedBytes
from zenc.common.wording import count, size_text
from zenc.errors import Diagnostic
from zenc.plan.expressions import Ints
from zenc.plan.ir import FACTOR, VALUE_KINDS, Phase, PhaseKind, Plan
from zenc.plan.unroll import Rounds
from zenc.rank_ir.uses import last_uses
from zenc.scheme.compression import Linear
from zenc.scheme.model import Format
from zenc.topology.model import Topology
from zenc.verify.losses import forwards_sealed
from zenc.verify.provenance import Deliveries

BUFFERS = ("gradient", "residuals", "segments", "encoded", "index_sets", "messages", "result")


@dataclass(frozen=True, slots=True)
class RankMemory:
    """The memory that ``rank`` needs in step ``number`` of ``phase``; 0 is before the first, and after the last.

    ``buffers`` are the bytes of each of BUFFERS.
    """

    rank: int
    buffers: tuple[int, ...]
    phase: str
    number: int

    @property
    def bytes(self) -> int:
        """The sum of all buffers."""
        return sum(self.buffers)

    @property
    def when(self) -> str:
        """The step in words: ``push, step 3``."""
        return f"{self.phase}, step {self.number}" if self.number else self.phase

    def text(self) -> str:
        """Return ``gradient 2.7 MB, segments 40 MB``: the buffers that are not empty."""
        named = zip(BUFFERS, self.buffers, strict=True)
        return ", ".join(f"{name.replace('_', ' ')} {size_text(bytes)}" for name, bytes in named if bytes)


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """The memory of all ranks: ``needs[rank]``, and the topology's memory, None where it does not say."""

    topology: Topology
    needs: tuple[RankMemory, ...]

    @property
    def greatest(self) -> RankMemory:
        """The memory of the rank that needs most."""
        return max(self.needs, key=lambda memory: memory.bytes)

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: bytes that ranks and hosts need and have."""
        return {
            "ranks": [
                {
                    "rank": memory.rank,
                    "needs": memory.bytes,
                    "has": self.topology.memory(memory.rank),
                    "when": memory.when,
                    "buffers": dict(zip(BUFFERS, memory.buffers, strict=True)),
                }
                for memory in self.needs
            ],
            "hosts": [
                {"host": host.name, "needs": self.of_host(host.ranks), "has": host.memory}
                for host in self.topology.hosts
            ],
        }

    def of_host(self, ranks: tuple[int, ...]) -> int:
        """Return the bytes that the ranks of a machine need together, where their buffers lie in its memory."""
        return sum(self.needs[rank].bytes for rank in ranks)

    def problems(self) -> list[Diagnostic]:
        """Return the devices and the machines whose memory is too small: one diagnostic for all of each."""
        return [*self._devices(), *self._hosts()]

    def _devices(self) -> list[Diagnostic]:
        small = [
            (memory, has)
            for memory in self.needs
            if (has := self.topology.memory(memory.rank)) is not None and has < memory.bytes
        ]
        if not small:
            return []
        memory, has = max(small, key=lambda each: each[0].bytes - each[1])
        message = (
            f"rank {memory.rank} needs {size_text(memory.bytes)} of memory ({memory.when}), and has {size_text(has)}"
        )
        others = len(small) - 1
        more = (
            memory.text(),
            *((f"so {'does' if others == 1 else 'do'} {count(others, 'other rank')}",) if others else ()),
        )
        return [Diagnostic("memory-exceeded", message, None, more, _ADVICE)]

    def _hosts(self) -> list[Diagnostic]:
        needs = [(host, self.of_host(host.ranks)) for host in self.topology.hosts]
        small = [(host, bytes) for host, bytes in needs if host.memory is not None and host.memory < bytes]
        if not small:
            return []
        host, bytes = max(small, key=lambda each: each[1])
        has = size_text(host.memory or 0)
        message = f"the ranks of {host.name} need {size_text(bytes)} of memory together, and it has {has}"
        more = (f"so do those of {count(len(small) - 1, 'other machine')}",) if len(small) > 1 else ()
        return [Diagnostic("memory-exceeded", message, None, more, _ADVICE)]


_ADVICE = "send sparser gradients, cut the tensor in more parts, or in smaller tensors"


def bitmap_bytes(slots: int) -> int:
    """Return the bytes of a bit for each of ``slots``, in words of 64."""
    return -(-slots // 64) * 8


class IndexSets:
    """The bytes of each rank's index sets, while a plan is played: ``held`` [size].

    ``present`` is the number of ``units`` that somebody holds; each of ``members`` owns some of them.
    """

    def __init__(self, size: int, members: int, units: int, present: int, parts: int, cut: int) -> None:
        self.size, self.present, self.parts, self.cut = size, present, parts, cut
        self.set_bytes = bitmap_bytes(units)
        self.part_bytes = members * bitmap_bytes(-(-present // members))
        self.held: Ints = np.full(size, self.set_bytes, dtype=np.int64)
        self.agreed = False
        self.summed = np.zeros((size, members), dtype=bool)

    def announce(self, moved: Deliveries) -> None:
        """Add the sets of other ranks."""
        np.add.at(self.held, moved.dst, moved.contributors * self.set_bytes // self.parts)

    def hear(self, moved: Deliveries) -> None:
        """Add received parts of a directory: units, and the owner of each."""
        np.add.at(self.held, moved.dst, (self.set_bytes + self.present * OWNER_BYTES) // self.parts)

    def agree(self) -> None:
        """Add the union of all sets, and the owners."""
        if not self.agreed:
            self.held = self.held + self.set_bytes + self.present * OWNER_BYTES
            self.agreed = True

    def push(self, moved: Deliveries) -> None:
        """Add the bitmaps of parts that are summed."""
        before = self.summed.sum(axis=1)
        self.summed[moved.dst, moved.part // self.cut % self.summed.shape[1]] = True
        self.held = self.held + (self.summed.sum(axis=1) - before) * self.part_bytes


INDEX_BYTES = 8
KEPT_BYTES = 4


def kept_vectors(plan: Plan) -> int:
    """Return the number of float32 vectors [elements] kept before and after a call, with 1 for a rest that is not."""
    return 2 * sum(name != FACTOR for name in plan.kept) + (plan.reworks and "residual" not in plan.kept)


class MemoryModel:
    """An account of every rank's buffers while ``rounds`` of a plan are played: ``observe`` takes every round."""

    def __init__(self, plan: Plan, rounds: Rounds, expected: ExpectedBytes) -> None:
        size, parts, self.uses = rounds.size, rounds.parts, last_uses(rounds)
        self.plan, self.size, self.expected = plan, size, expected
        self.filled = any(phase.format is Format.DENSE for phase in plan.of(PhaseKind.PUSH))
        self.table = np.array([self._segment(k) for k in range(size + 1)], dtype=np.int64)
        self.count = np.ones((size, parts), dtype=np.int64)
        self.bytes = np.full((size, parts), self.table[1])
        self.phase: Phase | None = None
        self.own = parts * int(self.table[1])
        self.sets, self.cut = self._index_sets(), 0
        if plan.announces:  # the gradient is packed as one segment, whose bitmap is the index set
            self.own = self.cut = self._units(1, expected.units) * self._unit_bytes
        elif self.sets:
            part = expected.units // plan.parts_of_mapping(size)
            self.cut = self._units(size // expected.counted.members, part) * self._unit_bytes
        self.held = np.full(size, self.own)
        self.gradient = self._dense() if plan.is_lossy else self._coo(1)
        self.residuals = KEPT_BYTES * self.expected.gradient.units * self.expected.gradient.width * kept_vectors(plan)
        if FACTOR in plan.kept:  # both factors before and after a call, of which one is sent
            self.residuals += 4 * KEPT_BYTES * self.expected.units
        self.encoded = np.zeros((size, parts), dtype=np.int64)
        self.most = np.zeros((len(BUFFERS), size), dtype=np.int64)
        self.when, self.moments = np.zeros(size, dtype=np.int64), list[tuple[str, int]]()
        self._note(self.held, np.zeros_like(self.held), 0, "before the first step", 0)

    def _index_sets(self) -> IndexSets | None:
        plan, size, members = self.plan, self.size, self.expected.counted.members
        if not plan.announces and plan.across is None:
            return None
        units = -(-self.expected.units // (plan.parts_of_mapping(size) if plan.across is not None else 1))
        parts, cut = members if plan.by_directory(size) else 1, self.expected.counted.cut
        return IndexSets(size, members, units, self._units(size, units), parts, cut)

    def observe(self, phase: Phase, number: int, moved: Deliveries) -> None:
        """Count the deliveries ``moved`` in step ``number`` of ``phase``."""
        weights = self.expected.delivered(phase, moved, np.arange(len(moved.src)), len(moved.src))
        messages = np.bincount(moved.src, weights, self.size) + np.bincount(moved.dst, weights, self.size)
        if phase is not self.phase:
            self._end_phase()
            if self.phase is None or not forwards_sealed(self.phase, phase):
                self.encoded[:] = 0
            self.phase = phase
        if self.sets and self.expected.of(phase).by_holders:
            self._take_sets(self.sets, phase.kind, moved)
        before = self.held
        if phase.kind in VALUE_KINDS:
            self._take(phase, moved, self.uses.freed[phase.name, number])
        copies = self.encoded.sum(axis=1)
        if phase.code is not None:
            self._take_encoded(phase, moved, self.uses.freed[phase.name, number])
        self._note(np.maximum(before, self.held), messages.astype(np.int64), 0, phase.name, number, copies)

    def capacity(self, topology: Topology) -> MemoryPeak:
        """Return the most memory that every rank needed."""
        self._end_phase()
        if self.sets:
            self._agree(self.sets)
        result, nothing = 0 if self.plan.is_lossy else self._coo(self.size), np.zeros(self.size, dtype=np.int64)
        self._note(self.held, nothing, result, "after the last step", 0, self.encoded.sum(axis=1))
        needs = zip(range(self.size), self.most.T.tolist(), self.when.tolist(), strict=True)
        return MemoryPeak(
            topology, tuple(RankMemory(rank, tuple(most), *self.moments[when]) for rank, most, when in needs)
        )

    def _note(
        self, held: Ints, messages: Ints, result: int, phase: str, number: int, encoded: Ints | None = None
    ) -> None:
        """Note the buffers of all ranks now, [buffers, size]; keep those of ranks that have more than ever before."""
        sets = self.sets.held if self.sets else np.zeros_like(held)
        copies = np.zeros_like(held) if encoded is None else encoded
        before, after = (np.full_like(held, self.gradient), np.full_like(held, self.residuals)), (sets, messages)
        now = np.stack((*before, held, copies, *after, np.full_like(held, result)))
        more = now.sum(axis=0) > self.most.sum(axis=0)
        self.when[more] = len(self.moments)
        self.moments.append((phase, number))
        self.most = np.where(more, now, self.most)

    def _take_sets(self, sets: IndexSets, kind: PhaseKind, moved: Deliveries) -> None:
        if kind is PhaseKind.ANNOUNCE:
            sets.announce(moved)
        elif kind is PhaseKind.DIRECTORY:
            sets.hear(moved)
        else:
            self._agree(sets)
        if kind is PhaseKind.PUSH:
            sets.push(moved)

    def _agree(self, sets: IndexSets) -> None:
        """Cut the gradient in parts, beside its segment."""
        if not sets.agreed:
            sets.agree()
            self.held = self.held + self.cut

    def _take(self, phase: Phase, moved: Deliveries, freed: Ints) -> None:
        """Replace, add or keep apart the received pieces, as the phase asks; then drop those that were ``freed``."""
        count, bytes = self.count.reshape(-1), self.bytes.reshape(-1)
        at = moved.dst * self.count.shape[1] + moved.part
        changed = np.union1d(at, freed)
        before = bytes[changed]
        if phase.kind is PhaseKind.PULL:
            count[at] = self.size
        else:
            np.add.at(count, at, moved.contributors)
        if phase.keeps_apart:
            np.add.at(bytes, at, self.table[moved.contributors // moved.pieces] * moved.pieces)
        else:
            bytes[at] = self.table[count[at]]
        bytes[freed] = 0
        self.held = self.held.copy()  # what was there before is still to be noted
        np.add.at(self.held, changed // self.count.shape[1], bytes[changed] - before)

    def _take_encoded(self, phase: Phase, moved: Deliveries, freed: Ints) -> None:
        """Keep the bytes of sent and received pieces beside their values, until these are merged or ``freed``."""
        owned = np.zeros(len(moved.part), dtype=np.bool_)
        each = moved.contributors // moved.pieces
        sizes = self.expected.rows(phase, moved.part, moved.pieces, each, owned).astype(np.int64)
        self.encoded[moved.src, moved.part] = sizes // moved.pieces
        if phase.kind is PhaseKind.PULL:
            self.encoded[moved.dst, moved.part] = sizes
        elif phase.keeps_apart:
            np.add.at(self.encoded, (moved.dst, moved.part), sizes)
        else:
            self.encoded[moved.dst, moved.part] = 0
        self.encoded.reshape(-1)[freed] = 0

    def _end_phase(self) -> None:
        if self.phase and self.phase.kind is PhaseKind.PUSH and self.phase.keeps_apart:
            needed = self.uses.needed[self.phase.name].reshape(self.bytes.shape)
            merged = np.where(needed, self.table[self.count], 0)
            self.held = self.held + (merged - self.bytes).sum(axis=1)
            self.bytes = merged
            self.encoded[:] = 0

    def _units(self, contributors: int, of: int) -> int:
        return round(of * float(self.expected.profile.union(contributors)))

    def _segment(self, contributors: int) -> int:
        """Return the bytes of a part in memory: the values of its slots; and a bitmap of these, without index sets."""
        slots = math.ceil(self.expected.slots)
        there = slots if self.filled else self._units(contributors, slots)
        if contributors == self.size and not self.plan.announces:
            there = math.ceil(self.expected.result_units / self.plan.parts(self.size))
        bitmap = 0 if self.plan.announces else bitmap_bytes(slots)
        return bitmap + there * self._unit_bytes

    def _dense(self) -> int:
        """Return the bytes of a dense gradient, and of another that travels for it, with its losses."""
        of, plan = self.expected.gradient, self.plan
        bytes = of.units * of.unit_bytes
        if plan.transform is None and not any(isinstance(one, Linear) for one in plan.of(PhaseKind.PUSH)[0].select):
            return bytes
        loses = plan.feedback is not None and any(phase.code for phase in plan.phases)
        return bytes + self.expected.units * (self._unit_bytes + KEPT_BYTES * loses)

    def _coo(self, contributors: int) -> int:
        return self._units(contributors, self.expected.units) * (INDEX_BYTES + self._unit_bytes)

    @property
    def _unit_bytes(self) -> int:
        return self.expected.unit_bytes
