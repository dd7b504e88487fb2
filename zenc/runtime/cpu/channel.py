"""The channel of a call: transport, common header, tags and deadline of all its messages; and the outbox.

Every wait has a deadline, and its error names scheme, step, peer and bytes.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from zenc.errors import Diagnostic, SynchronisationError, first_line
from zenc.rank_ir.ir import Exchange, Message
from zenc.runtime.call.call_queue import Turn
from zenc.runtime.call.stats import PhaseStats
from zenc.runtime.cpu.segments import HEADER_GAP, HeldSegment, MessageBuffer, SegmentOps
from zenc.runtime.transports.transport import EAGER_BYTES, ROUND_BITS, Pending, Transport
from zenc.scheme.model import Format
from zenc.wire.constants import MAGIC, WIRE_FORMATS, WIRE_VERSION
from zenc.wire.structs import (
    MESSAGE_HEADER,
    MESSAGE_HEADER_BYTES,
    SEGMENT_HEADER,
    SEGMENT_HEADER_BYTES,
    offset_of,
    packing,
)

_MESSAGE, _SEGMENT = packing(MESSAGE_HEADER), packing(SEGMENT_HEADER)
_BYTES_AT = offset_of(MESSAGE_HEADER, "bytes")


@dataclass(slots=True)  # not frozen: one is made in every call
class CallHeader:
    """The common header of a call's messages: the call's number, its signature, and the units of its tensor."""

    call: int
    signature: int
    units: int


@dataclass(slots=True)  # not frozen: twice as fast to make
class SegmentHeader:
    """The header of one segment; ``origin`` is the rank that contributed it (one-shot) or holds it (otherwise)."""

    part: int
    origin: int
    format: Format
    count: int


def message_header(envelope: CallHeader, sender: int, segments: list[SegmentHeader], total: int) -> bytes:
    """Return the header of a message of ``total`` bytes, and those of its segments."""
    head = _MESSAGE.pack(
        MAGIC, WIRE_VERSION, 0, len(segments), sender, total, envelope.call, envelope.signature, envelope.units
    )
    return head + b"".join(
        [_SEGMENT.pack(s.part, s.origin << 8 | WIRE_FORMATS.index(s.format), s.count) for s in segments]
    )


def bytes_of_message(address: int) -> ctypes.c_uint64:
    """Return the bytes of the whole message by the header at ``address``, which is not to be trusted yet."""
    return ctypes.c_uint64.from_address(address + _BYTES_AT)


def read_headers(data: bytes, sender: int, envelope: CallHeader) -> tuple[int, int, list[SegmentHeader]]:
    """Return (bytes of the whole message, number of segments, their headers as far as ``data`` holds them).

    Raises SynchronisationError unless the message is one of ``sender`` in this call.
    """
    if len(data) < MESSAGE_HEADER_BYTES:
        raise corrupt(sender, "it is shorter than a header")
    magic, version, nothing, segments, source, total, call, signature, units = _MESSAGE.unpack_from(data)
    if magic != MAGIC or version != WIRE_VERSION or nothing or source != sender:
        raise corrupt(sender, "it has no header of this version of zenc")
    if signature != envelope.signature or call != envelope.call or units != envelope.units:
        raise _other_call(sender, envelope, CallHeader(call, signature, units))
    if total < MESSAGE_HEADER_BYTES + segments * SEGMENT_HEADER_BYTES:
        raise corrupt(sender, f"{total} bytes can't hold {segments} segments")
    here = min(segments, (len(data) - MESSAGE_HEADER_BYTES) // SEGMENT_HEADER_BYTES)
    return total, segments, [_segment_header(data, index, sender) for index in range(here)]


def _segment_header(data: bytes, index: int, sender: int) -> SegmentHeader:
    part, packed, count = _SEGMENT.unpack_from(data, MESSAGE_HEADER_BYTES + index * SEGMENT_HEADER_BYTES)
    if packed & 0xFF >= len(WIRE_FORMATS):
        raise corrupt(sender, f"segment {index} has an unknown format")
    return SegmentHeader(part, packed >> 8, WIRE_FORMATS[packed & 0xFF], count)


def corrupt(sender: int, why: str) -> SynchronisationError:
    """Return the error of a message that can't be read."""
    return SynchronisationError(Diagnostic("corrupt-message", f"a message of rank {sender} can't be read: {why}"))


def _other_call(sender: int, mine: CallHeader, theirs: CallHeader) -> SynchronisationError:
    if mine.units != theirs.units:
        why = f"its tensor has {theirs.units:,} units, and this rank's has {mine.units:,}"
    elif mine.signature != theirs.signature:
        why = "its tensor, name, dtype, operation or scheme differs from this rank's"
    else:
        why = f"it is in call {theirs.call} of this group, and this rank in call {mine.call}"
    help = "all ranks must call the same collectives, on tensors of one name, shape and dtype, in the same order"
    return SynchronisationError(Diagnostic("different-calls", f"rank {sender} is in another call: {why}", help=help))


Sending: TypeAlias = tuple[Pending, int, int, Exchange]
"""A packet that is being sent, its peer, the bytes of the whole message, and its step."""


class Channel:
    """A rank's end of one call; ``deadline`` in seconds bounds every single wait.

    Beside an unfinished call a wait may last for all waits that this one still has, since the peer may be in it. If it
    fails, so do all waits.
    """

    def __init__(self, scheme: str, deadline: float, transport: Transport, call: CallHeader) -> None:
        self.scheme, self.deadline, self.transport, self.call = scheme, deadline, transport, call
        self.head = message_header(call, transport.rank, [], 0)
        self.waited: dict[int, float] = {}
        """Peer -> seconds of waiting for it so far."""
        self.turn = Turn()
        self._tag = (call.call & 0xFFFF) << ROUND_BITS + 1

    def tag(self, step: Exchange, packet: int) -> int:
        """Return the tag of the first (0) or second (1) packet of a message of ``step``."""
        return self._tag | (step.number & (1 << ROUND_BITS) - 1) << 1 | packet

    def wait(self, pending: Pending, peer: int, step: Exchange, size: int | None) -> torch.Tensor:
        """Return the packet [bytes], of a message of ``size``; raises SynchronisationError if it does not come."""
        return self._wait(pending, peer, step, size, "from")

    def wait_all(self, sending: list[Sending]) -> None:
        """Wait until all packets in ``sending`` are on their way, and forget them; raises SynchronisationError."""
        for pending, peer, size, step in sending:
            self._wait(pending, peer, step, size, "to")
        sending.clear()

    def _wait(self, pending: Pending, peer: int, step: Exchange, size: int | None, toward: str) -> torch.Tensor:
        self.turn.pass_on()
        started, waits = time.perf_counter(), 1 + self.turn.exchanges_before
        try:
            packet = pending.wait(self.deadline * waits)
        except RuntimeError as error:
            what = f"{'a message' if size is None else f'a message of {size:,} bytes'} {toward} rank {peer}"
            where = f"(scheme {self.scheme}, step {step.number}, call {self.call.call})"
            late = time.perf_counter() - started >= self.deadline * waits * 0.95
            raise (_late(what, where, self.deadline, waits) if late else _lost(what, where, error)) from error
        self.waited[peer] = self.waited.get(peer, 0.0) + time.perf_counter() - started
        return packet


def _late(toward: str, where: str, deadline: float, waits: int) -> SynchronisationError:
    within = "within" if waits == 1 else f"in {waits} times"
    message = f"{toward} did not get through {within} the deadline of {deadline:g} s {where}"
    help = "see whether that rank is alive and makes the same calls; deadline= sets how long to wait"
    return SynchronisationError(Diagnostic("deadline", message, help=help))


def _lost(toward: str, where: str, error: RuntimeError) -> SynchronisationError:
    notes = (first_line(error),)
    help = "a rank has died or given up: its own output says why"
    return SynchronisationError(Diagnostic("peer-lost", f"{toward} was lost {where}", notes=notes, help=help))


class Outbox:
    """The sending end of one rank in one call.

    A message of one segment is sent from the segment's own frame, without a copy, and to every peer from the same
    bytes; one that came alone is passed on as it came, under a new header. A message of several segments is put
    together.
    """

    def __init__(self, channel: Channel, ops: SegmentOps) -> None:
        self.channel, self.ops = channel, ops
        self.sending: list[Sending] = []
        self.rests: list[tuple[torch.Tensor, int]] = []

    def send(
        self,
        step: Exchange,
        messages: Sequence[Message],
        loads: Sequence[Sequence[HeldSegment]],
        format: Format,
        stats: PhaseStats,
    ) -> None:
        """Send the first packet of each of ``messages`` of ``step``, for most the only one; ``finish`` waits for them.

        ``loads``: the segments of each.
        """
        transport, tag, sending = self.channel.transport, self.channel.tag(step, 0), self.sending
        send, whole = transport.send, transport.whole
        for message, buffer in zip(messages, self._messages(loads, format, stats), strict=True):
            size, peer = buffer.numel(), message.peer
            if size <= EAGER_BYTES or whole(peer):
                sending.append((send(peer, tag, buffer), peer, size, step))
            else:
                sending.append((send(peer, tag, buffer[:EAGER_BYTES]), peer, size, step))
                self.rests.append((buffer, peer))

    def send_rests(self, step: Exchange) -> None:
        """Send the rests of long messages, once this rank is ready for those of its peers.

        A transport may ask a receiver whether it is ready, as gloo does. An answer behind a long message on the same
        link comes only after it, so that two ranks would send to each other one after the other.
        """
        for buffer, peer in self.rests:
            rest = self.channel.transport.send(peer, self.channel.tag(step, 1), buffer[EAGER_BYTES:])
            self.sending.append((rest, peer, buffer.numel(), step))
        self.rests.clear()

    def finish(self, most: int = 0) -> None:
        """Wait until all sent packets are on their way, but for the last ``most``."""
        last = self.sending[-most:] if most else []
        del self.sending[len(self.sending) - len(last) :]
        self.channel.wait_all(self.sending)
        self.sending += last

    def _messages(
        self, loads: Sequence[Sequence[HeldSegment]], format: Format, stats: PhaseStats
    ) -> list[torch.Tensor]:
        """Return a message of each load; the frames of single segments are sealed all at once."""
        messages: list[torch.Tensor] = []
        unsealed: list[HeldSegment] = []
        for segments in loads:
            frame = segments[0].frame if len(segments) == 1 else None
            if frame is None or not (frame.asked is format or self._fits(frame, segments[0], format)):
                messages.append(self._together(segments, format, stats))
                continue
            if not frame.sealed:
                frame.sealed = True
                unsealed.append(segments[0])
            stats.body_sent(frame.format, frame.size - HEADER_GAP)
            messages.append(frame.message())
        if unsealed:
            self.ops.seal(unsealed, self.channel.head)
        stats.sent(sum([message.numel() for message in messages]), len(messages))
        return messages

    def _fits(self, frame: MessageBuffer, segment: HeldSegment, format: Format) -> bool:
        return frame.format is self.ops.wire_format(segment.part, segment.count, format)

    def _together(self, segments: Sequence[HeldSegment], format: Format, stats: PhaseStats) -> torch.Tensor:
        formats = [self.ops.wire_format(s.part, s.count, format) for s in segments]
        headers = [SegmentHeader(s.part, s.origin, f, s.count) for s, f in zip(segments, formats, strict=True)]
        sizes = [
            self.ops.measure(h.part, h.count, h.format, s.bytes_of_values(self.ops.unit_bytes))[1]
            for s, h in zip(segments, headers, strict=True)
        ]
        at = MESSAGE_HEADER_BYTES + SEGMENT_HEADER_BYTES * len(headers)
        buffer = self.ops.room(at + sum(sizes))
        address = buffer.data_ptr()
        head = message_header(self.channel.call, self.channel.transport.rank, headers, buffer.numel())
        ctypes.memmove(address, head, len(head))
        for segment, header, size in zip(segments, headers, sizes, strict=True):
            self.ops.encode(segment, header.format, address + at)
            stats.body_sent(header.format, size)
            at += size
        return buffer
