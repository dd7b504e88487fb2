"""The messages of one step: encoded and sent, awaited and decoded.

A message of one segment is sent from the segment's own frame, without a copy, and to every peer from the same bytes;
one that came alone is passed on as it came, under a new header. Messages of several segments are put together.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from typing import TypeAlias

import torch

from zenc.errors import Diagnostic, SynchronisationError
from zenc.plan.formats import MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES, most_body_bytes
from zenc.plan.program import Message, Step
from zenc.runtime.segments import HEADER_GAP, Frame, Segment, Workshop
from zenc.runtime.stats import PhaseStats
from zenc.runtime.transport import EAGER_BYTES, Pending, Transport
from zenc.runtime.wire import (
    Envelope,
    SegmentHeader,
    corrupt,
    message_header,
    read_headers,
)
from zenc.scheme.model import Format

ROUND_BITS = 14
"""Tags are 31 bits: the call modulo 2^16, the round, and which packet of a message."""


@dataclass(slots=True)
class Arrival:
    """A message of ``size`` bytes whose first packet is in ``whole``; ``rest`` is under way for a long one.

    ``headers`` are those of its ``segments`` that the first look showed.
    """

    message: Message
    whole: torch.Tensor
    size: int
    segments: int
    headers: list[SegmentHeader]
    rest: Pending | None


Posted: TypeAlias = tuple[Message, Pending, torch.Tensor]
Room: TypeAlias = dict[int, tuple[torch.Tensor, ...]]
"""Step number -> buffers for the first packets that come in it."""


class Messenger:
    """Carries the messages of one call of one rank. ``deadline`` in seconds bounds every single wait."""

    def __init__(
        self,
        scheme: str,
        one_shot: bool,
        deadline: float,
        transport: Transport,
        workshop: Workshop,
        call: Envelope,
        room: Room,
    ) -> None:
        self.scheme, self.one_shot, self.deadline = scheme, one_shot, deadline
        self.transport, self.workshop, self.call, self.room = transport, workshop, call, room
        self.head = message_header(call, transport.rank, [], 0)
        self.sending: list[tuple[Pending, int, int]] = []

    def post(self, step: Step) -> list[Posted]:
        """Be ready for the first packet of every message of ``step``."""
        if not step.receives:
            return []
        tag, buffers = self._tag(step, 0), self._buffers(step)
        return [
            (message, self.transport.receive(message.peer, tag, buffer), buffer)
            for message, buffer in zip(step.receives, buffers, strict=True)
        ]

    def _buffers(self, step: Step) -> tuple[torch.Tensor, ...]:
        """Room for the first packets of a step, kept from call to call: a call leaves nothing of itself in it."""
        kept = self.room.get(step.number)
        if kept is None:
            kept = torch.empty(len(step.receives), EAGER_BYTES, dtype=torch.uint8).unbind()
            self.room[step.number] = kept
        return kept

    def send(self, peer: int, segments: list[Segment], step: Step, format: Format, stats: PhaseStats) -> None:
        """Send ``segments`` as one message; ``finish`` waits for it."""
        buffer = self._alone(segments[0], format, stats) if len(segments) == 1 else None
        if buffer is None:
            buffer = self._together(segments, format, stats)
        size = buffer.numel()
        first = buffer if size <= EAGER_BYTES else buffer[:EAGER_BYTES]
        self.sending.append((self.transport.send(peer, self._tag(step, 0), first), peer, size))
        if size > EAGER_BYTES:
            rest = self.transport.send(peer, self._tag(step, 1), buffer[EAGER_BYTES:])
            self.sending.append((rest, peer, size))
        stats.sent(size)

    def _alone(self, segment: Segment, format: Format, stats: PhaseStats) -> torch.Tensor | None:
        """The segment's own frame, ready to be sent; None if it is laid out for another format."""
        frame = segment.frame
        if frame is None:
            return None
        fits = frame.asked is format or frame.format is self.workshop.wire_format(segment.part, segment.count, format)
        if not fits:
            return None
        if frame.buffer is None:
            if frame.has_index:  # passed on as it came, under a header of this rank
                header = SegmentHeader(segment.part, segment.origin, frame.format, segment.count)
                self._write_headers(frame.address, [header], frame.size)
            else:
                self.workshop.seal(segment, frame, self.head)
            frame.buffer = frame.view()
        stats.body_sent(frame.format, frame.size - HEADER_GAP)
        return frame.buffer

    def _together(self, segments: list[Segment], format: Format, stats: PhaseStats) -> torch.Tensor:
        formats = [self.workshop.wire_format(s.part, s.count, format) for s in segments]
        headers = [SegmentHeader(s.part, s.origin, f, s.count) for s, f in zip(segments, formats, strict=True)]
        sizes = [self.workshop.measure(h.part, h.count, h.format)[1] for h in headers]
        at = MESSAGE_HEADER_BYTES + SEGMENT_HEADER_BYTES * len(headers)
        buffer = torch.empty(at + sum(sizes), dtype=torch.uint8)
        address = buffer.data_ptr()
        self._write_headers(address, headers, buffer.numel())
        for segment, header, size in zip(segments, headers, sizes, strict=True):
            self.workshop.encode(segment, header.format, address + at)
            stats.body_sent(header.format, size)
            at += size
        return buffer

    def _write_headers(self, address: int, headers: list[SegmentHeader], total: int) -> None:
        head = message_header(self.call, self.transport.rank, headers, total)
        ctypes.memmove(address, head, len(head))

    def receive(self, step: Step, posted: list[Posted], stats: PhaseStats) -> list[Segment]:
        """What arrives in ``step``, in no order: all first packets, then the rest of the long messages."""
        found: list[Segment] = []
        arrivals: list[Arrival] = []
        bitmaps = self.workshop.bitmaps(len(posted))
        bitmap = bitmaps.data_ptr()
        for message, pending, buffer in posted:
            self._wait(pending, message.peer, step, None)
            segment = self._opened(message, buffer, bitmap, bitmaps, stats) if len(message.pieces) == 1 else None
            if segment is None:
                arrivals.append(self._looked_at(step, message, buffer))
            else:
                found.append(segment)
            bitmap += self.workshop.bitmap_bytes
        for arrival in arrivals:
            found += self._take(step, arrival, stats)
        return found

    def _opened(
        self, message: Message, buffer: torch.Tensor, bitmap: int, keep: object, stats: PhaseStats
    ) -> Segment | None:
        """The segment of a short message that carries just one: by far the most, and so with the least to do."""
        segment = self.workshop.open(self.head, buffer, message.peer, message.pieces[0].part, bitmap, keep)
        if segment is None or segment.frame is None or segment.origin >= self.transport.size:
            return None
        stats.received(segment.frame.size)
        stats.body_received(segment.frame.format, segment.frame.size - HEADER_GAP)
        if not self.one_shot:
            segment.origin = message.peer
        return segment

    def _looked_at(self, step: Step, message: Message, buffer: torch.Tensor) -> Arrival:
        """Read the headers of a first packet, and be ready for the rest of a long message."""
        total, segments, headers = read_headers(_head(buffer, HEADER_GAP), message.peer, self.call)
        if total <= EAGER_BYTES:
            return Arrival(message, buffer, total, segments, headers, None)
        if total > self._most_bytes(message):
            raise corrupt(message.peer, f"it says that it has {total:,} bytes, more than its parts can have")
        whole = torch.empty(total, dtype=torch.uint8)
        ctypes.memmove(whole.data_ptr(), buffer.data_ptr(), EAGER_BYTES)
        rest = self.transport.receive(message.peer, self._tag(step, 1), whole[EAGER_BYTES:])
        return Arrival(message, whole, total, segments, headers, rest)

    def _most_bytes(self, message: Message) -> int:
        """What the heaviest segments of the message's parts would weigh."""
        contributors = self.transport.size if self.one_shot else 1
        slots, unit_bytes = self.workshop.slots, self.workshop.unit_bytes
        bodies = sum(most_body_bytes(slots[piece.part], unit_bytes) for piece in message.pieces)
        return MESSAGE_HEADER_BYTES + contributors * (SEGMENT_HEADER_BYTES * len(message.pieces) + bodies)

    def _take(self, step: Step, arrival: Arrival, stats: PhaseStats) -> list[Segment]:
        """Wait for the rest of a message, and decode it."""
        if arrival.rest is not None:
            self._wait(arrival.rest, arrival.message.peer, step, arrival.size)
        stats.received(arrival.size)
        sender, address = arrival.message.peer, arrival.whole.data_ptr()
        at = MESSAGE_HEADER_BYTES + SEGMENT_HEADER_BYTES * arrival.segments
        if arrival.segments != len(arrival.headers):
            *_, arrival.headers = read_headers(_head(arrival.whole, at), sender, self.call)
        self._demand_expected(arrival.headers, arrival.message)
        sizes = [self.workshop.measure(h.part, h.count, h.format)[1] for h in arrival.headers]
        if at + sum(sizes) != arrival.size:
            raise corrupt(sender, f"it has {arrival.size} bytes, and its segments need {at + sum(sizes)}")
        return self._decoded(arrival, sizes, address + at, stats)

    def _decoded(self, arrival: Arrival, sizes: list[int], body: int, stats: PhaseStats) -> list[Segment]:
        headers, sender = arrival.headers, arrival.message.peer
        frame = Frame(arrival.whole, 0, arrival.size, headers[0].format, None, True) if len(headers) == 1 else None
        bitmaps = self.workshop.bitmaps(len(headers))
        bitmap, keep, found = bitmaps.data_ptr(), (arrival.whole, bitmaps), []
        for header, size in zip(headers, sizes, strict=True):
            origin = header.origin if self.one_shot else sender
            what = (header.part, origin, header.count, header.format)
            found.append(self.workshop.decode(*what, body, bitmap, keep, frame))
            stats.body_received(header.format, size)
            body, bitmap = body + size, bitmap + self.workshop.bitmap_bytes
        return found

    def _demand_expected(self, headers: list[SegmentHeader], message: Message) -> None:
        """The parts that the plan says, of ranks that there are, none twice and none fuller than its part."""
        slots, size, pieces = self.workshop.slots, self.transport.size, message.pieces
        if len(headers) == len(pieces) == 1:
            same = headers[0].part == pieces[0].part
        else:
            came = {(header.part, header.origin) for header in headers}
            same = {part for part, _ in came} == {piece.part for piece in pieces} and len(came) == len(headers)
        if not same or any(header.origin >= size or header.count > slots[header.part] for header in headers):
            raise corrupt(message.peer, f"its {len(headers)} segments are not those that the plan says")

    def finish(self, step: Step) -> None:
        """Wait until all that was sent in ``step`` is on its way, so that its buffers may change."""
        for pending, peer, size in self.sending:
            self._wait(pending, peer, step, size, sending=True)
        self.sending.clear()

    def _tag(self, step: Step, packet: int) -> int:
        return (self.call.call & 0xFFFF) << ROUND_BITS + 1 | (step.number & (1 << ROUND_BITS) - 1) << 1 | packet

    def _wait(self, pending: Pending, peer: int, step: Step, size: int | None, sending: bool = False) -> None:
        started = time.perf_counter()
        try:
            pending.wait(self.deadline)
        except RuntimeError as error:
            late = time.perf_counter() - started >= self.deadline * 0.95
            what = "a message" if size is None else f"a message of {size:,} bytes"
            toward = f"{what} {'to' if sending else 'from'} rank {peer}"
            where = f"(scheme {self.scheme}, step {step.number}, call {self.call.call})"
            raise _late(toward, where, self.deadline) if late else _lost(toward, where, error) from error


def _head(buffer: torch.Tensor, size: int) -> bytes:
    return ctypes.string_at(buffer.data_ptr(), min(size, buffer.numel()))


def _late(toward: str, where: str, deadline: float) -> SynchronisationError:
    message = f"{toward} did not get through within the deadline of {deadline:g} s {where}"
    help = "see whether that rank is alive and makes the same calls; deadline= sets how long to wait"
    return SynchronisationError(Diagnostic("deadline", message, help=help))


def _lost(toward: str, where: str, error: RuntimeError) -> SynchronisationError:
    notes = (str(error).splitlines()[0][:200],)
    help = "a rank has died or given up: its own output says why"
    return SynchronisationError(Diagnostic("peer-lost", f"{toward} was lost {where}", notes=notes, help=help))
