"""What a message weighs: the byte layout that every target writes, counted without writing it.

    message = message header | segment header * | body *        # headers of all segments first
    body    = index, padded with zeros to 8 bytes | values, padded to 8 bytes
    index   = dense: nothing (every slot is occupied)           # cost per occupied slot, at density d:
              coo: the slots, 4 bytes each (8 beyond 2^32)      #   32 bits
              bitmap: one bit a slot, in words of 64            #   1/d bits (Zen, OSDI 2025, section 3.3)

All formats are lossless about which slots are occupied; ``dense`` therefore exists only where all are. ``auto`` takes
the smallest for the count of each message (the first of equals in the order above).
"""

from __future__ import annotations

from dataclasses import dataclass

from zenc.scheme.model import Format

MESSAGE_HEADER_BYTES = 48
SEGMENT_HEADER_BYTES = 16
WIRE_FORMATS = (Format.DENSE, Format.COO, Format.BITMAP)
"""The formats that a segment can have on the wire; the header carries the position in this tuple."""

DTYPE_BYTES = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2}


@dataclass(frozen=True, slots=True)
class SegmentShape:
    """``count`` occupied slots out of ``slots``, each ``width`` values of ``itemsize`` bytes."""

    slots: int
    count: int
    width: int
    itemsize: int

    @property
    def value_bytes(self) -> int:
        return self.count * self.width * self.itemsize


def padded(size: int) -> int:
    """``size`` rounded up to 8 bytes."""
    return (size + 7) // 8 * 8


def index_bytes(format: Format, slots: int, count: int) -> int:
    """The bytes of the index part, padded; ``format`` is one of WIRE_FORMATS."""
    if format is Format.DENSE:
        return 0
    if format is Format.COO:
        return padded(count * (4 if slots <= 1 << 32 else 8))
    return (slots + 63) // 64 * 8


def body_bytes(format: Format, shape: SegmentShape) -> int:
    """The bytes of a segment's body in ``format``."""
    return index_bytes(format, shape.slots, shape.count) + padded(shape.value_bytes)


def wire_format(format: Format, slots: int, count: int) -> Format:
    """The format that a segment travels in: ``format`` itself, or for ``auto`` the smallest that is lossless."""
    if format is not Format.AUTO:
        return format
    if count == slots:
        return Format.DENSE
    return Format.COO if index_bytes(Format.COO, slots, count) <= (slots + 63) // 64 * 8 else Format.BITMAP


def wire_layout(format: Format, slots: int, count: int, unit_bytes: int) -> tuple[Format, int, int]:
    """(wire format, bytes of the index, bytes of the body) of a segment: all of the above in one call."""
    values = (count * unit_bytes + 7) // 8 * 8
    if format is Format.DENSE or (format is Format.AUTO and count == slots):
        return Format.DENSE, 0, values
    coo = (count * (4 if slots <= 1 << 32 else 8) + 7) // 8 * 8
    bitmap = (slots + 63) // 64 * 8
    if format is Format.COO or (format is Format.AUTO and coo <= bitmap):
        return Format.COO, coo, coo + values
    return Format.BITMAP, bitmap, bitmap + values


def message_bytes(format: Format, shapes: list[SegmentShape]) -> int:
    """The bytes of a message that carries segments of ``shapes``, headers included."""
    bodies = sum(body_bytes(wire_format(format, shape.slots, shape.count), shape) for shape in shapes)
    return MESSAGE_HEADER_BYTES + SEGMENT_HEADER_BYTES * len(shapes) + bodies


def slots_of(units: int, parts: int, part: int) -> int:
    """The slots of ``part`` when ``units`` are cut in ``parts``: equal cuts, the last ones may be shorter or empty."""
    per_part = -(-units // parts)
    return min(max(units - part * per_part, 0), per_part)
