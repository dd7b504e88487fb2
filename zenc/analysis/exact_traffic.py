"""The bytes of a call, exactly, before it runs: a plan played with sets of slots.

What the run time does with segments is done here with their bitmaps: unions under incremental aggregation, pieces
that are kept apart under one-shot, slots that a format fills up. Formats and sizes are those of ``zenc.wire.formats``,
so that the sums equal what ``Collective.stats`` counts, to the byte. Values are not known: where a phase that is not
dense follows a dense one, units are left out whose values are all zero, and here those that nobody held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from zenc.gradients.index_sets import Gradients, occupancy
from zenc.plan.expressions import Ints
from zenc.plan.ir import Phase, PhaseKind, Plan
from zenc.plan.unroll import Round, Rounds
from zenc.scheme.model import Format
from zenc.verify.provenance import Deliveries, bit_of, by_part, each_its_own
from zenc.wire.constants import WIRE_FORMATS
from zenc.wire.formats import wire_layout
from zenc.wire.mix import Words
from zenc.wire.partitioning import UnitPartition, cut, owned, whole
from zenc.wire.structs import MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES

_NAMES = (*(str(format.value) for format in WIRE_FORMATS), "values")
"""As statistics name them; the last is of values that travel alone, by holders."""
MOST_SEGMENTS = 1 << 22
"""Segments that are weighed at once."""
MOST_WORDS = 1 << 25
"""Words of bitmaps that are copied at once."""


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

    def numbers(self) -> tuple[Ints, Ints, Ints, Ints]:
        """The arrays [ranks], without the formats."""
        return self.sent, self.received, self.messages_sent, self.messages_received

    def of_rank(self, rank: int) -> dict[str, Any]:
        """As ``stats["phases"][...]`` of a collective on ``rank``, but for times and imbalance."""
        return {
            "bytes_sent": int(self.sent[rank]),
            "bytes_received": int(self.received[rank]),
            "messages_sent": int(self.messages_sent[rank]),
            "messages_received": int(self.messages_received[rank]),
            "formats_sent": _of_rank(self.formats_sent, rank),
            "formats_received": _of_rank(self.formats_received, rank),
        }


def _of_rank(formats: dict[str, Ints], rank: int) -> dict[str, int]:
    return {name: int(counts[rank]) for name, counts in formats.items() if counts[rank]}


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
        found = ExactTraffic(*(sum(columns) for columns in zip(*(t.numbers() for t in each), strict=True)))
        for traffic in each:
            for mine, theirs in (
                (found.formats_sent, traffic.formats_sent),
                (found.formats_received, traffic.formats_received),
            ):
                for name, bodies in theirs.items():
                    mine[name] = mine.get(name, 0) + bodies
        return found


def weigh(plan: Plan, rounds: Rounds, of: Gradients) -> CallTraffic:
    """Play ``rounds``, which ``plan`` was proved for, with the gradients of ``rounds.size`` ranks."""
    messages: list[MessageCounts] = []
    traffic: dict[str, ExactTraffic] = {}
    by = owned(of.held, of.units, rounds.parts) if plan.announces else cut(plan.mapping, of.units, rounds.parts)
    values = _Play(by, of, of.unit_bytes, bare=plan.announces)
    for phase, played in rounds.phases:
        play = _Play(whole(of.units), of, unit_bytes=0) if phase.kind is PhaseKind.ANNOUNCE else values
        messages += play.phase(phase, played)
        traffic |= play.traffic
    full = values.slots if values.dense else values.counts.max(axis=0)
    return CallTraffic(tuple(messages), traffic, full)


class _Play:
    """The state: ``held[rank, part]`` is the bitmap of what a rank holds, and ``counts[rank, part]`` its bits.

    In a dense phase segments are full all the same. ``unfilled`` is what is held without the rest of blocks that were
    filled up, if any were. In a one-shot phase ``held`` is what a rank held when the phase began, and
    ``apart[rank, part]`` are the ranks whose pieces of that time it has collected, as bits. ``bare``: values travel
    without headers of segments and indices, and a message without any is not sent.
    """

    def __init__(self, by: UnitPartition, of: Gradients, unit_bytes: int, bare: bool = False) -> None:
        self.size, self.parts = of.size, len(by.sizes)
        self.unit_bytes, self.bare = unit_bytes, bare
        self.slots, self.held = by.sizes, occupancy(of, by)
        self.counts, self.dense = _counts(self.held), False
        self.unfilled: Words | None = None
        self.apart: Words | None = None
        self.traffic: dict[str, ExactTraffic] = {}

    def phase(self, phase: Phase, played: Iterable[Round]) -> Iterator[MessageCounts]:
        """Play all rounds of a phase."""
        traffic = self.traffic.setdefault(phase.kind.value, _no_traffic(self.size))
        self._reshape(phase.format)
        self.apart = each_its_own(self.size, self.parts) if phase.keeps_apart else None
        for number, round_ in enumerate(played, start=1):
            rows = by_part(round_)
            yield MessageCounts(phase.name, number, *self._round(traffic, phase.format, rows))
            self._deliver(phase.kind, rows)
        if self.apart is not None:
            self._merge_collected(self.apart)
            self.apart = None

    def _round(self, traffic: ExactTraffic, format: Format, rows: Deliveries) -> tuple[Ints, Ints, Ints]:
        """Sender, receiver and bytes of each message of a round."""
        pairs, index = np.unique(rows.src * self.size + rows.dst, return_inverse=True)
        bytes = np.full(len(pairs), MESSAGE_HEADER_BYTES, dtype=np.int64)
        message = index.reshape(-1)
        src, dst = pairs // self.size, pairs % self.size
        header = 0 if self.bare else SEGMENT_HEADER_BYTES
        for row, count, part in self._segments(rows):
            formats, bodies = self._bodies(format, self.slots[part], count)
            bytes += np.bincount(message[row], bodies + header, len(pairs)).astype(np.int64)
            self._count_formats(traffic, formats, bodies, rows.src[row], rows.dst[row])
        if self.bare:
            sent = bytes > MESSAGE_HEADER_BYTES
            src, dst, bytes = src[sent], dst[sent], bytes[sent]
        self._count(traffic, src, dst, bytes)
        return src, dst, bytes

    def _segments(self, rows: Deliveries) -> Iterator[tuple[Ints, Ints, Ints]]:
        """The segments that travel, some at a time: row of each, occupied slots, part."""
        if self.apart is None:
            yield np.arange(len(rows.src)), self._count_of(rows.src, rows.part), rows.part
            return
        some = max(1, MOST_SEGMENTS // self.size)
        for start in range(0, len(rows.src), some):
            end = start + some
            row, origin = np.nonzero(_unpacked(self._pieces(self.apart, rows, slice(start, end)), self.size))
            part = rows.part[start:end][row]
            yield row + start, self._count_of(origin, part), part

    def _count_of(self, rank: Ints, part: Ints) -> Ints:
        """Occupied slots of segments as they travel in this phase."""
        return self.slots[part] if self.dense else self.counts[rank, part]

    def _pieces(self, apart: Words, rows: Deliveries, some: slice) -> Words:
        """The pieces that each row carries, as bits of ranks."""
        pieces = apart[rows.src[some], rows.part[some]]
        origin = rows.origin[some]
        limited = np.flatnonzero(origin >= 0)
        pieces[limited] = 0
        pieces[limited, origin[limited] // 64] = bit_of(origin[limited])
        return pieces

    def _bodies(self, format: Format, slots: Ints, counts: Ints) -> tuple[Ints, Ints]:
        """Wire format (its place in _NAMES) and bytes of the body of each segment."""
        if self.bare:
            values: Ints = (counts * self.unit_bytes + 7) // 8 * 8
            return np.full(len(counts), len(WIRE_FORMATS)), values
        lengths, length = np.unique(slots, return_inverse=True)
        beyond = int(counts.max(initial=0)) + 1
        kinds, index = np.unique(length.reshape(-1) * beyond + counts, return_inverse=True)
        pairs = zip(lengths[kinds // beyond].tolist(), (kinds % beyond).tolist(), strict=True)
        layouts = [wire_layout(format, *pair, self.unit_bytes) for pair in pairs]
        chosen = np.array([WIRE_FORMATS.index(wire) for wire, _, _ in layouts], dtype=np.int64)
        bodies = np.array([body for _, _, body in layouts], dtype=np.int64)
        return chosen[index.reshape(-1)], bodies[index.reshape(-1)]

    def _count_formats(self, traffic: ExactTraffic, formats: Ints, bodies: Ints, src: Ints, dst: Ints) -> None:
        for number in np.unique(formats).tolist():
            name, chosen = _NAMES[number], formats == number
            for by_format, ranks in ((traffic.formats_sent, src), (traffic.formats_received, dst)):
                counted = by_format.setdefault(name, np.zeros(self.size, dtype=np.int64))
                np.add.at(counted, ranks[chosen], bodies[chosen])

    def _count(self, traffic: ExactTraffic, src: Ints, dst: Ints, bytes: Ints) -> None:
        np.add.at(traffic.sent, src, bytes)
        np.add.at(traffic.received, dst, bytes)
        traffic.messages_sent += np.bincount(src, minlength=self.size)
        traffic.messages_received += np.bincount(dst, minlength=self.size)

    def _deliver(self, kind: PhaseKind, rows: Deliveries) -> None:
        """What arrives takes the place of what was held, or is joined to it; all rows see what was there before."""
        if self.apart is not None:
            _join(self.apart, self._pieces(self.apart, rows, slice(None)), rows.dst, rows.part)
            return
        for held in (self.held, self.unfilled):
            if held is not None:
                _exchange(kind, held, rows)
        self.counts[rows.dst, rows.part] = _counts(self.held[rows.dst, rows.part])

    def _reshape(self, format: Format) -> None:
        """What the next phase sends: whole blocks, if it says so, and after a dense one nothing that nobody held."""
        if self.dense and format is not Format.DENSE and self.unfilled is not None:
            self.held, self.unfilled = self.unfilled, None
            self.counts = _counts(self.held)
        self.dense = format is Format.DENSE
        if format.block and self.held.shape[2]:
            self.unfilled = self.held.copy() if self.unfilled is None else self.unfilled
            for rank in range(self.size):
                self.held[rank] = _filled(self.held[rank], self.slots, format.block)
            self.counts = _counts(self.held)

    def _merge_collected(self, apart: Words) -> None:
        for held in (self.held, self.unfilled):
            if held is not None:
                _merge_collected(held, apart)
        self.counts = _counts(self.held)


def _no_traffic(size: int) -> ExactTraffic:
    sent, received, messages_sent, messages_received = np.zeros((4, size), dtype=np.int64)
    return ExactTraffic(sent, received, messages_sent, messages_received)


def _exchange(kind: PhaseKind, held: Words, rows: Deliveries) -> None:
    """Deliver all rows, some at a time."""
    some = max(1, MOST_WORDS // max(1, held.shape[2]))
    before = held if len(rows.src) <= some else held.copy()
    for start in range(0, len(rows.src), some):
        src, dst, part = (column[start : start + some] for column in (rows.src, rows.dst, rows.part))
        if kind is PhaseKind.PULL:
            held[dst, part] = before[src, part]
        else:
            _join(held, before[src, part], dst, part)


def _merge_collected(held: Words, apart: Words) -> None:
    """The union of the pieces that each rank has of a part. Where many have the same ones it is made once."""
    before, made = held.copy(), dict[tuple[int, bytes], npt.NDArray[np.uint64]]()
    for rank, part in np.argwhere(np.bitwise_count(apart).sum(axis=2) > 1).tolist():
        members = apart[rank, part]
        key = (part, members.tobytes())
        if key not in made:
            origins = np.flatnonzero(_unpacked(members[None], held.shape[0])[0])
            made[key] = np.bitwise_or.reduce(before[origins, part], axis=0)
        held[rank, part] = made[key]


def _join(held: Words, payload: Words, dst: Ints, part: Ints) -> None:
    """Or each row of the payload to what its receiver holds."""
    if not len(payload):
        return
    key = dst * held.shape[1] + part
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(key[order]) != 0])
    first = order[starts]
    held[dst[first], part[first]] |= np.bitwise_or.reduceat(payload[order], starts, axis=0)


def _counts(words: Words) -> Ints:
    """The bits of each bitmap, [..., words] -> [...]."""
    return np.asarray(np.bitwise_count(words).sum(axis=-1, dtype=np.int64))


def _filled(held: Words, slots: Ints, block: int) -> Words:
    """The bitmaps of all parts, [parts, words], with every block filled up that has any slot."""
    bits = np.unpackbits(held.view(np.uint8), axis=1, bitorder="little")
    firsts = np.arange(0, bits.shape[1], block)
    found = np.repeat(np.maximum.reduceat(bits, firsts, axis=1), block, axis=1)[:, : bits.shape[1]]
    found[np.arange(bits.shape[1]) >= slots[:, None]] = 0
    filled: Words = np.packbits(found, axis=1, bitorder="little").view(np.uint64)
    return filled


def _unpacked(words: Words, bits: int) -> npt.NDArray[np.uint8]:
    """The lowest ``bits`` bits of each row of words, one a byte."""
    return np.asarray(np.unpackbits(words.view(np.uint8), axis=1, count=bits, bitorder="little"))
