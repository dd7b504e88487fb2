"""Message and segment headers: the bytes before the bodies that the kernels write.

    message = MESSAGE_HEADER, SEGMENT_HEADER of every segment, bodies      # zenc.wire.structs

``signature`` stands for the scheme, the tensor's shape and dtype and the operation, and ``call`` counts the calls of
this group, so that a rank in another call differs from one that is merely late.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from zenc.errors import Diagnostic, SynchronisationError
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
