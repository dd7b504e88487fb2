"""The bytes of a call, exactly, before it runs: a fold over the exchanges of all ranks.

A segment has all units that its ranks hold of its part, filled up as its phase asks. Formats and sizes are those of
``zenc.wire.formats``, so that the sums equal what ``Collective.stats`` counts, to the byte. Values are not known: where
a phase that is not dense follows a dense one, units are left out whose values are all zero, and here those that nobody
held; and selected units are drawn (``zenc.analysis.contribution``).
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from zenc.analysis.contribution import contributed_sets, selected_later
from zenc.analysis.expected_bytes import OWNER_BYTES, blocks_of, coded_bytes
from zenc.gradients.index_sets import Gradients, occupancy
from zenc.plan.expressions import Ints
from zenc.plan.ir import VALUE_KINDS, Phase, PhaseKind, Plan
from zenc.plan.tier_layout import first_part, levels_of
from zenc.plan.unroll import Rounds
from zenc.rank_ir.exchanges import ExchangeTable, exchange_table
from zenc.scheme.compression import Code
from zenc.scheme.model import Format
from zenc.verify.proof import prove
from zenc.verify.provenance import Deliveries, members_of, own_contributions, set_sizes
from zenc.wire.constants import WIRE_FORMATS
from zenc.wire.formats import FormatCosts, format_costs, wire_layout
from zenc.wire.mix import Words, mix
from zenc.wire.partitioning import UnitPartition, cut, dealt, dealt_across, owned, owned_across, whole
from zenc.wire.structs import MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES

_NAMES = (*(str(format.value) for format in WIRE_FORMATS), "values")
"""Formats by their names in statistics; the last is that of values that travel alone, by holders."""
MOST_WORDS = 1 << 22
"""Most words of bitmaps that are copied at once."""


@dataclass(frozen=True, slots=True, eq=False)
class MessageCounts:
    """The messages of one round, one entry each; ``number`` counts the rounds of ``phase`` from 1."""

    phase: str
    number: int
    src: Ints
    dst: Ints
    bytes: Ints


@dataclass(slots=True)
class ExactTraffic:
    """Bytes that each rank sends and receives in all phases of one kind, [ranks]. ``formats`` count bodies alone."""

    sent: Ints
    received: Ints
    messages_sent: Ints
    messages_received: Ints
    formats_sent: dict[str, Ints] = field(default_factory=dict)
    formats_received: dict[str, Ints] = field(default_factory=dict)

    def count(self, src: Ints, dst: Ints, bytes: Ints) -> None:
        """Count one message of ``bytes`` from each ``src`` to its ``dst``, [messages] each."""
        np.add.at(self.sent, src, bytes)
        np.add.at(self.received, dst, bytes)
        self.messages_sent += np.bincount(src, minlength=len(self.sent))
        self.messages_received += np.bincount(dst, minlength=len(self.sent))

    def of_rank(self, rank: int) -> dict[str, Any]:
        """Return the counts as ``stats["phases"][...]`` of a collective on ``rank``, but for times and imbalance."""
        return {
            "bytes_sent": int(self.sent[rank]),
            "bytes_received": int(self.received[rank]),
            "messages_sent": int(self.messages_sent[rank]),
            "messages_received": int(self.messages_received[rank]),
            "formats_sent": {name: int(n[rank]) for name, n in self.formats_sent.items() if n[rank]},
            "formats_received": {name: int(n[rank]) for name, n in self.formats_received.items() if n[rank]},
        }


@dataclass(frozen=True, slots=True, eq=False)
class CallTraffic:
    """The exact bytes of a call: its messages, and ``traffic`` by kind of phase."""

    messages: tuple[MessageCounts, ...]
    traffic: dict[str, ExactTraffic]
    counts: Ints
    """Occupied slots of the complete parts, [parts]."""

    @property
    def total(self) -> ExactTraffic:
        """The traffic of all phases together, arrays [ranks]."""
        each = list(self.traffic.values())
        columns = [(of.sent, of.received, of.messages_sent, of.messages_received) for of in each]
        found = ExactTraffic(*np.sum(columns, axis=0))
        for way in ("formats_sent", "formats_received"):
            for name, bodies in (item for of in each for item in getattr(of, way).items()):
                getattr(found, way)[name] = getattr(found, way).get(name, 0) + bodies
        return found


def weigh(plan: Plan, rounds: Rounds, of: Gradients) -> CallTraffic:
    """Return the bytes of ``plan`` with the gradients of ``rounds.size`` ranks; raises VerificationError."""
    fold = ExactBytes(plan, of)
    prove(plan, rounds, fold.observe)
    return fold.traffic()


class ExactBytes:
    """A counter of the bytes of a call while its plan is proved: ``observe`` is called with every step."""

    def __init__(self, plan: Plan, of: Gradients, gpu: bool = False) -> None:
        of = contributed_sets(plan, of)
        self.plan, self.size, self.costs = plan, of.size, format_costs(plan.link, gpu)
        parts = plan.parts_of_mapping(of.size)
        named = plan.by_directory(of.size)
        held = plan.announces and owned(of.held, of.units, parts, named)
        by = held or cut(plan.mapping, of.units, of.width, parts)
        self.values = _Segments(by, of, of.unit_bytes)
        self.segments = dict.fromkeys(PhaseKind, self.values)
        self.across = _Across(plan, of, by) if plan.across is not None else None
        if plan.announces:
            sets = _Segments(dealt(of.units, of.size) if named else whole(of.units), of, unit_bytes=0)
            self.segments |= {PhaseKind.ANNOUNCE: sets, PhaseKind.DIRECTORY: sets.weighing(OWNER_BYTES)}
        self.blocks = blocks_of(plan) | {phase.name: 0 for phase in plan.phases if phase.format is Format.DENSE}
        self.messages: list[MessageCounts] = []
        self.by_kind = {
            phase.kind.value: ExactTraffic(*np.zeros((4, of.size), dtype=np.int64)) for phase in plan.phases
        }

    def observe(self, phase: Phase, number: int, moved: Deliveries) -> None:
        """Count the deliveries ``moved`` in step ``number`` of ``phase``."""
        segments, bare = self.segments[phase.kind], self.plan.is_bare(phase, self.size)
        table, traffic = exchange_table(phase, moved, self.size), self.by_kind[phase.kind.value]
        block = self.blocks.get(phase.name, 1)
        if self.across is not None:
            segments, table = self.across.of(table, self.values)
            block = block if segments is self.values else 1  # what was filled up is there
        pairs, message = np.unique(table.src * self.size + table.dst, return_inverse=True)
        src, dst = np.divmod(pairs, self.size)
        counts = segments.counts(table.part, table.ranks, block)
        counts = self._selected(phase, counts, table)
        contributors = set_sizes(table.ranks) if phase.code else counts
        formats, bodies = segments.bodies(phase, table.part, counts, None if bare else contributors, self.costs)
        _count_formats(traffic, formats, bodies, table)
        rows = np.bincount(message.reshape(-1), bodies + (0 if bare else SEGMENT_HEADER_BYTES), len(pairs))
        sent = rows > 0 if bare else slice(None)
        found = src[sent], dst[sent], MESSAGE_HEADER_BYTES + rows[sent].astype(np.int64)
        traffic.count(*found)
        self.messages.append(MessageCounts(phase.name, number, *found))

    def _selected(self, phase: Phase, counts: Ints, table: ExchangeTable) -> Ints:
        """Return ``counts`` of the segments of ``table`` after the selections of sums before, or in, ``phase``."""
        first, *later = self.plan.of(*VALUE_KINDS)
        if not any((first.merge, *(each.selects for each in later))) or phase.format is Format.DENSE:
            return counts
        found: Ints = counts.copy()
        slots = np.maximum(self.values.slots[table.part], 1)
        contributors = set_sizes(table.ranks)
        for kind in np.unique(contributors).tolist():
            rows = contributors == kind
            density = selected_later(self.plan, phase, self.size, kind, counts[rows] / slots[rows])
            found[rows] = np.round(density * slots[rows]).astype(np.int64)
        return found

    def traffic(self) -> CallTraffic:
        """Return the traffic counted so far."""
        parts, everyone = np.arange(len(self.values.slots)), own_contributions(self.size, 1).sum(axis=0)
        complete = np.broadcast_to(everyone, (len(parts), everyone.shape[1]))
        counts = self.values.counts(parts, complete, self.blocks[self.plan.phases[-1].name])
        return CallTraffic(tuple(self.messages), self.by_kind, counts)


class _Across:
    """The segments of phases in an outermost tier with owners of its own, and those of the tiers inside.

    Tiers inside move the parts of ``by`` whole. A rank announces the units that all ranks of its member hold of its
    part.
    """

    def __init__(self, plan: Plan, of: Gradients, by: UnitPartition) -> None:
        level, named = levels_of(plan, of.size)[-1], plan.by_directory(of.size)
        self.outermost, self.members, self.inner = plan.tiers[-1], level.members, level.inner
        of = _filled_inside(of, by, self.inner, blocks_of(plan)[plan.of(PhaseKind.PUSH)[-1].name])
        self.rows = _Segments(owned_across(by, of.held, self.members, named), of, of.unit_bytes)
        sets = _Segments(dealt_across(by, self.members) if named else by, of, unit_bytes=0)
        self.sets = {PhaseKind.ANNOUNCE: sets, PhaseKind.DIRECTORY: sets.weighing(OWNER_BYTES)}
        ranks = np.arange(of.size)
        self.first = first_part(levels_of(plan, of.size)[:-1], ranks) // (1 if named else self.members)

    def of(self, table: ExchangeTable, inside: _Segments) -> tuple[_Segments, ExchangeTable]:
        """Return the segments of a phase, and ``table`` with their part numbers; ``inside``: those of inner tiers."""
        if table.phase.tier != self.outermost:
            whole = table.part % self.members == 0
            columns = {name: getattr(table, name)[whole] for name in ("src", "dst", "origin", "ranks")}
            return inside, replace(table, part=table.part[whole] // self.members, **columns)
        if table.phase.kind in VALUE_KINDS:
            return self.rows, table
        part = self.first[table.src] + table.part
        return self.sets[table.phase.kind], replace(table, part=part, ranks=self._of_members(table.ranks))

    def _of_members(self, ranks: Words) -> Words:
        bits = np.unpackbits(ranks.view(np.uint8), axis=1, bitorder="little")[:, : self.members * self.inner]
        whole = np.repeat(bits.reshape(len(bits), self.members, self.inner).any(axis=2), self.inner, axis=1)
        found = np.zeros((len(ranks), ranks.shape[1] * 64), dtype=np.uint8)
        found[:, : whole.shape[1]] = whole
        return np.ascontiguousarray(np.packbits(found, axis=1, bitorder="little")).view(np.uint64)


def _filled_inside(of: Gradients, by: UnitPartition, inner: int, block: int) -> Gradients:
    """Return ``of`` with the units that were filled up in blocks before members of ``inner`` ranks announce them.

    All ranks of a member have the same units by then, so any of them may stand as the holder.
    """
    if block <= 1:
        return of
    held, starts = list(of.held), np.cumsum(by.sizes) - by.sizes
    units = np.argsort(starts[by.part] + by.slot, kind="stable")  # by part, and by slot in it
    for first in range(0, of.size, inner):
        mine = np.unique(np.concatenate(held[first : first + inner]))
        blocks = np.unique(by.part[mine] * (by.sizes.max() + 1) + by.slot[mine] // block)
        part, number = np.divmod(blocks, by.sizes.max() + 1)
        slots = number[:, None] * block + np.arange(block)
        there = slots < by.sizes[part][:, None]
        held[first] = np.union1d(held[first], units[(starts[part][:, None] + slots)[there]])
    return replace(of, held=tuple(held))


class _Segments:
    """The slots of segments, and the bytes of their bodies, where a unit has ``unit_bytes`` bytes of values.

    ``own[rank, part]`` are the slots that each rank holds, as bitmaps. The last ``union`` of each part is kept, with
    its ``ranks``: sums grow rank by rank.
    """

    def __init__(self, by: UnitPartition, of: Gradients, unit_bytes: int) -> None:
        self.own, self.slots, self.unit_bytes = occupancy(of, by), by.sizes, unit_bytes
        self.width = of.width
        self.union: Words = np.zeros(self.own.shape[1:], dtype=np.uint64)
        self.ranks: Words = np.zeros((len(by.sizes), -(-of.size // 64)), dtype=np.uint64)

    def weighing(self, unit_bytes: int) -> _Segments:
        """Return segments of the same slots with units of ``unit_bytes``."""
        found = copy(self)
        found.unit_bytes = unit_bytes
        return found

    def counts(self, part: Ints, ranks: Words, block: int) -> Ints:
        """Return the slots that ``ranks`` [rows, words] occupy of ``part`` [rows], in whole blocks; all for block 0."""
        if not block:
            return self.slots[part]
        first, content = _contents(part, ranks)
        some = max(1, MOST_WORDS // max(1, self.own.shape[2] * len(self.own)))
        found = np.zeros(len(first), dtype=np.int64)
        for start in range(0, len(first), some):
            rows = first[start : start + some]
            bits = self._union(part[rows], ranks[rows])
            filled = _filled(bits, self.slots[part[rows]], block) if block > 1 and bits.size else bits
            found[start : start + some] = np.bitwise_count(filled).sum(axis=1, dtype=np.int64)
        return found[content]

    def _union(self, part: Ints, ranks: Words) -> Words:
        """Return the union of the slots of ``ranks``, [rows, words]; only the slots of new ranks are added."""
        grows = ((self.ranks[part] & ~ranks) == 0).all(axis=1)[:, None]
        bits = np.where(grows, self.union[part], np.uint64(0))
        row, rank = members_of(np.where(grows, ranks & ~self.ranks[part], ranks))
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        if len(starts):
            bits[row[starts]] |= np.bitwise_or.reduceat(self.own[rank, part[row]], starts, axis=0)
        self.ranks[part], self.union[part] = ranks, bits
        return bits

    def bodies(
        self, phase: Phase, part: Ints, counts: Ints, contributors: Ints | None, costs: FormatCosts
    ) -> tuple[Ints, Ints]:
        """Return wire format (its place in _NAMES) and bytes of each segment's body, a sum of ``contributors``; [rows].

        Without ``contributors``, values travel alone, without an index.
        """
        if contributors is None:
            values: Ints = (counts * self.unit_bytes + 7) // 8 * 8
            return np.full(len(counts), len(WIRE_FORMATS)), values
        lengths, length = np.unique(self.slots[part], return_inverse=True)
        beyond = int(counts.max(initial=0)) + 1
        kinds, index = np.unique(length.reshape(-1) * beyond + counts, return_inverse=True)
        pairs = zip(lengths[kinds // beyond].tolist(), (kinds % beyond).tolist(), strict=True)
        unit_bytes = self.unit_bytes if phase.code is None else 0
        layouts = [wire_layout(phase.format, *pair, unit_bytes, costs) for pair in pairs]
        chosen = np.array([WIRE_FORMATS.index(wire) for wire, _, _ in layouts], dtype=np.int64)
        bodies = np.array([body for _, _, body in layouts], dtype=np.int64)[index.reshape(-1)]
        return chosen[index.reshape(-1)], bodies if phase.code is None else bodies + self._encoded(
            phase.code, counts, contributors
        )

    def _encoded(self, code: Code, counts: Ints, contributors: Ints) -> Ints:
        """Return the bytes of the values of each segment, [rows]."""
        found = np.zeros_like(counts)
        for kind in np.unique(contributors).tolist():
            rows = contributors == kind
            found[rows] = coded_bytes(code, counts[rows] * self.width, kind).astype(np.int64)
        return found


def _contents(part: Ints, ranks: Words) -> tuple[Ints, Ints]:
    """Return the first row of each content, [contents], and the content of each row, compared by prints of 64 bits."""
    prints = mix(part.astype(np.uint64))
    for words in ranks.T:
        prints = mix(prints ^ words)
    _, first, content = np.unique(prints, return_index=True, return_inverse=True)
    return first, content.reshape(-1)


def _count_formats(traffic: ExactTraffic, formats: Ints, bodies: Ints, table: ExchangeTable) -> None:
    for number in np.unique(formats).tolist():
        name, chosen = _NAMES[number], formats == number
        for by_format, ranks in ((traffic.formats_sent, table.src), (traffic.formats_received, table.dst)):
            counted = by_format.setdefault(name, np.zeros(len(traffic.sent), dtype=np.int64))
            np.add.at(counted, ranks[chosen], bodies[chosen])


def _filled(bitmaps: Words, slots: Ints, block: int) -> Words:
    """Return ``bitmaps`` [rows, words] of ``slots`` [rows], with every block filled up that has any slot."""
    bits = np.unpackbits(bitmaps.view(np.uint8), axis=1, bitorder="little")
    firsts = np.arange(0, bits.shape[1], block)
    found = np.repeat(np.maximum.reduceat(bits, firsts, axis=1), block, axis=1)[:, : bits.shape[1]]
    found[np.arange(bits.shape[1]) >= slots[:, None]] = 0
    filled: Words = np.packbits(found, axis=1, bitorder="little").view(np.uint64)
    return filled
