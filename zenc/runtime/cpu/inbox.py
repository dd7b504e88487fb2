"""The messages that a rank receives: awaited, checked, and decoded.

Messages of one segment are opened by a kernel: those that are whole in their first packet by one call of it a step.
Messages of several segments, and wrong ones, are handled here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch

from zenc.rank_ir.ir import Exchange, Message, SegmentSpec
from zenc.runtime.call.call_queue import IN_FLIGHT
from zenc.runtime.call.stats import PhaseStats
from zenc.runtime.cpu.channel import Channel, SegmentHeader, bytes_of_message, corrupt, read_headers
from zenc.runtime.cpu.kernels import Expected
from zenc.runtime.cpu.segments import HEADER_GAP, HeldSegment, MessageBuffer, SegmentOps
from zenc.runtime.transports.block_pool import own_room
from zenc.runtime.transports.transport import EAGER_BYTES, Pending
from zenc.scheme.compression import Code
from zenc.wire.constants import WIRE_FORMATS
from zenc.wire.formats import most_body_bytes, padded
from zenc.wire.structs import MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES

if TYPE_CHECKING:
    from zenc.runtime.lossy.coded_segments import CodedOps


@dataclass(slots=True)
class Arrival:
    """A message of ``size`` bytes whose first packet is in ``whole``; ``rest`` is under way for a long one.

    ``alone``: it came in one packet, and is not read yet. Where it is ``shared``, ``whole`` is memory of the sender,
    which is not to be written to. ``headers`` are those of its ``segments`` that the first look showed.
    """

    message: Message
    whole: torch.Tensor
    size: int
    segments: int
    headers: list[SegmentHeader]
    rest: Pending | None
    alone: bool = False
    shared: bool = False


Places: TypeAlias = tuple[tuple[torch.Tensor, ...], list[ctypes.c_uint64]]
"""Buffers for the first packets of a step, and for each the place of the message's length in its header."""
Room: TypeAlias = dict[int, Places]
"""Step number -> buffers for the first packets that come in it."""
Rooms: TypeAlias = "tuple[Room, ...]"
"""A room for each call that may be under way; a call uses that of its number."""


def new_rooms() -> Rooms:
    """Return empty rooms."""
    return tuple([Room() for _ in range(IN_FLIGHT)])


_NO_ROOM = torch.empty(0, dtype=torch.uint8, device="cpu")
"""The buffer of a packet that needs none."""


class Inbox:
    """The receiving end of one rank in one call."""

    by_origin = False
    """True where headers of the phase name a segment's origin: the order of the sum, and its last bits, depend on it.
    """
    code: Code | None = None
    """The code of the values that come in this phase."""

    def __init__(
        self, channel: Channel, ops: SegmentOps, room: Room, specs: Sequence[SegmentSpec], coded: CodedOps | None = None
    ) -> None:
        self.channel, self.ops, self.room, self.specs, self.coded = channel, ops, room, specs, coded

    def post(self, step: Exchange) -> list[Pending]:
        """Post receives for the first packet of every message of ``step``."""
        receive, tag = self.channel.transport.receive, self.channel.tag(step, 0)
        return [
            receive(message.peer, tag, buffer)
            for message, buffer in zip(step.receives, self._places(step)[0], strict=True)
        ]

    def _places(self, step: Exchange) -> Places:
        """Return room for the first packets of a step, kept from call to call; a call leaves none of its data there."""
        kept = self.room.get(step.number)
        if kept is None:
            buffers = torch.empty(len(step.receives), EAGER_BYTES, dtype=torch.uint8, device="cpu").unbind()
            kept = self.room[step.number] = buffers, [bytes_of_message(buffer.data_ptr()) for buffer in buffers]
        return kept

    def await_first(self, step: Exchange, posted: Sequence[Pending]) -> dict[int, Arrival]:
        """Wait for all first packets of ``step``, and post receives for the rests of long ones; return these by sender.

        Messages that come whole in one packet are among them.
        """
        (buffers, sizes), long = self._places(step), dict[int, Arrival]()
        for message, pending, buffer, size in zip(step.receives, posted, buffers, sizes, strict=True):
            if self._await(step, message, pending, buffer, long) and size.value > EAGER_BYTES:
                long[message.peer] = self._looked_at(step, message, buffer)
        return long

    def _await(
        self, step: Exchange, message: Message, pending: Pending, buffer: torch.Tensor, long: dict[int, Arrival]
    ) -> bool:
        """Wait for the first packet of ``message``; return whether it is in ``buffer``, and not whole in ``long``."""
        packet = self.channel.wait(pending, message.peer, step, None)
        if packet is buffer:
            return True
        shared = self.channel.transport.shares(message.peer)
        long[message.peer] = Arrival(message, packet, packet.numel(), 0, [], None, True, shared)
        return False

    def receive(self, step: Exchange, long: dict[int, Arrival], stats: PhaseStats) -> dict[int, HeldSegment]:
        """Return the segments of ``step``, by number, after ``await_first`` has found the ``long`` messages.

        A kernel opens all messages that carry one segment: at once those that are whole in their first packet, and
        each of the others when its rest is there.
        """
        found: dict[int, HeldSegment] = {}
        if not step.receives:
            return found
        ops, specs, buffers = self.ops, self.specs, self._places(step)[0]
        expected = ops.expect(step, buffers, specs)
        bitmaps = torch.empty(expected.count * ops.part_words, dtype=torch.int64, device="cpu")
        bitmap = bitmaps.data_ptr()
        for place, message in enumerate(step.receives):
            if (arrival := long.get(message.peer)) and arrival.alone:
                expected.place(place, arrival.whole.data_ptr(), arrival.size)
        opened = ops.kernels.open(self.channel.head, expected, ops.unit_bytes, bitmap, ops.part_words)
        for message, buffer, opens in zip(step.receives, buffers, opened, strict=True):
            number = message.segments[0]
            spec, arrival = specs[number], long.get(message.peer)
            if arrival and arrival.rest and len(message.segments) == 1:
                self.channel.wait(arrival.rest, message.peer, step, arrival.size)
                buffer, arrival.rest = arrival.whole, None
                one = Expected([(buffer.data_ptr(), message.peer, spec.part, ops.slots[spec.part], arrival.size)])
                (opens,) = ops.kernels.open(self.channel.head, one, ops.unit_bytes, bitmap, ops.part_words)
            size, count, origin, wire, values = opens
            if arrival is not None and arrival.alone:
                buffer = arrival.whole
            if size and (origin == spec.origin or self._is_any_rank(origin)):
                format, keep = WIRE_FORMATS[wire], (buffer, bitmaps)
                shared = arrival is not None and arrival.shared
                frame = None if shared else MessageBuffer(buffer, size, format, None, True)
                at = buffer.data_ptr() + values
                found[number] = HeldSegment(spec.part, spec.origin, count, bitmap, at, keep, frame)
                stats.received(size)
                stats.body_received(format, size - HEADER_GAP)
            else:
                arrival = self._arrived(step, message, buffer, long)
                found.update(zip(message.segments, self._take(step, arrival, stats), strict=True))
            bitmap += ops.bitmap_bytes
        return found

    def in_turn(
        self,
        step: Exchange,
        posted: Sequence[Pending],
        order: Sequence[int],
        rests: Callable[[], None],
        stats: PhaseStats,
    ) -> Iterator[tuple[int, HeldSegment]]:
        """Yield the segments of ``step``, each decoded before the wait for the next message.

        ``order``: the places of its messages. ``rests`` sends the rests of this rank's own, once it is ready.
        """
        whole, buffers = self.channel.transport.whole, self._places(step)[0]
        at_once = all(whole(message.peer) for message in step.receives)
        long = {} if at_once else self.await_first(step, posted)
        rests()
        for place in order:
            message = step.receives[place]
            if at_once:
                self._await(step, message, posted[place], buffers[place], long)
            arrival = self._arrived(step, message, buffers[place], long)
            yield from zip(message.segments, self._take(step, arrival, stats), strict=True)

    def take_whole(self, step: Exchange, message: Message, stats: PhaseStats) -> Iterator[tuple[int, HeldSegment]]:
        """Wait for ``message`` of ``step``, of a peer whose messages are whole; return its segments by number."""
        pending, long = (
            self.channel.transport.receive(message.peer, self.channel.tag(step, 0), _NO_ROOM),
            dict[int, Arrival](),
        )
        self._await(step, message, pending, _NO_ROOM, long)
        arrival = self._arrived(step, message, _NO_ROOM, long)
        return zip(message.segments, self._take(step, arrival, stats), strict=True)

    def _arrived(self, step: Exchange, message: Message, buffer: torch.Tensor, long: dict[int, Arrival]) -> Arrival:
        """Return the message whose first packet is in ``buffer``, unless it is among the ``long`` ones."""
        known = long.get(message.peer)
        if known is None or not known.alone:
            return known or self._looked_at(step, message, buffer)
        total, segments, headers = read_headers(_head(known.whole, HEADER_GAP), message.peer, self.channel.call)
        if total != known.size:
            raise corrupt(message.peer, f"it says that it has {total:,} bytes, and has {known.size:,}")
        return Arrival(message, known.whole, total, segments, headers, None, True, known.shared)

    def _looked_at(self, step: Exchange, message: Message, buffer: torch.Tensor) -> Arrival:
        """Read the headers of a first packet, and post a receive for the rest of a long message."""
        total, segments, headers = read_headers(_head(buffer, HEADER_GAP), message.peer, self.channel.call)
        if total <= EAGER_BYTES:
            return Arrival(message, buffer, total, segments, headers, None)
        if total > self._most_bytes(message):
            raise corrupt(message.peer, f"it says that it has {total:,} bytes, more than its parts can have")
        whole = own_room(total)
        ctypes.memmove(whole.data_ptr(), buffer.data_ptr(), EAGER_BYTES)
        rest = self.channel.transport.receive(message.peer, self.channel.tag(step, 1), whole[EAGER_BYTES:])
        return Arrival(message, whole, total, segments, headers, rest)

    def _most_bytes(self, message: Message) -> int:
        bodies = sum(self._most_body(self.specs[number]) for number in message.segments)
        return MESSAGE_HEADER_BYTES + SEGMENT_HEADER_BYTES * len(message.segments) + bodies

    def _most_body(self, spec: SegmentSpec) -> int:
        if self.code is not None and self.coded is not None:
            return self.coded.most_bytes(self.code, spec)
        return most_body_bytes(self.ops.slots[spec.part], self.ops.unit_bytes)

    def _take(self, step: Exchange, arrival: Arrival, stats: PhaseStats) -> list[HeldSegment]:
        if arrival.rest is not None:
            self.channel.wait(arrival.rest, arrival.message.peer, step, arrival.size)
        stats.received(arrival.size)
        sender, address = arrival.message.peer, arrival.whole.data_ptr()
        at = MESSAGE_HEADER_BYTES + SEGMENT_HEADER_BYTES * arrival.segments
        if arrival.segments != len(arrival.headers):
            *_, arrival.headers = read_headers(_head(arrival.whole, at), sender, self.channel.call)
        self._ensure_expected(arrival.headers, arrival.message)
        values = self._value_bytes(arrival, at)
        told = zip(arrival.headers, values, strict=True)
        sizes = [self.ops.measure(h.part, h.count, h.format, of)[1] for h, of in told]
        if at + sum(sizes) != arrival.size:
            raise corrupt(sender, f"it has {arrival.size} bytes, and its segments need {at + sum(sizes)}")
        return self._decoded(arrival, sizes, values, address + at, stats)

    def _value_bytes(self, arrival: Arrival, at: int) -> list[int | None]:
        """Return the bytes of each segment's values in a message whose bodies begin ``at``; None for plain ones."""
        if self.code is None or self.coded is None:
            return [None] * len(arrival.headers)
        found: list[int | None] = []
        for header, number in zip(arrival.headers, arrival.message.segments, strict=True):
            at += self.ops.measure(header.part, header.count, header.format, 0)[1]
            address, room = arrival.whole.data_ptr() + at, arrival.size - at
            size = self.coded.bytes_of(self.code, self.specs[number], header.count, address, room)
            if size < 0:
                raise corrupt(arrival.message.peer, "the length of its values is wrong")
            found.append(size)
            at += padded(size)
        return found

    def _decoded(
        self, arrival: Arrival, sizes: list[int], values: list[int | None], body: int, stats: PhaseStats
    ) -> list[HeldSegment]:
        headers = arrival.headers
        alone = len(headers) == 1 and not arrival.shared
        frame = MessageBuffer(arrival.whole, arrival.size, headers[0].format, None, True) if alone else None
        bitmaps = self.ops.bitmaps(len(headers))
        bitmap, keep, found = bitmaps.data_ptr(), (arrival.whole, bitmaps), []
        for header, size, of, number in zip(headers, sizes, values, arrival.message.segments, strict=True):
            what = (header.part, self.specs[number].origin, header.count, header.format)
            segment = self.ops.decode(*what, body, bitmap, keep, frame)
            if self.code is not None and self.coded is not None and of is not None:
                segment = self.coded.open(segment, self.code, self.specs[number], of)
            found.append(segment)
            stats.body_received(header.format, size)
            body, bitmap = body + size, bitmap + self.ops.bitmap_bytes
        return found

    def _ensure_expected(self, headers: list[SegmentHeader], message: Message) -> None:
        """Raise unless the segments are those of the plan, in order, and not fuller than their parts."""
        slots = self.ops.slots
        specs = [self.specs[number] for number in message.segments]
        if len(headers) != len(specs) or not all(
            header.part == spec.part
            and header.count <= slots[header.part]
            and (header.origin == spec.origin or self._is_any_rank(header.origin))
            for header, spec in zip(headers, specs, strict=True)
        ):
            raise corrupt(message.peer, f"its {len(headers)} segments are not those that the plan says")

    def _is_any_rank(self, origin: int) -> bool:
        """Return whether headers of this phase may name any rank, and ``origin`` is a rank."""
        return not self.by_origin and origin < self.channel.transport.size


def _head(buffer: torch.Tensor, size: int) -> bytes:
    return ctypes.string_at(buffer.data_ptr(), min(size, buffer.numel()))
