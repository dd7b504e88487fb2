"""Segments in memory: a rank's units of a part, and their packing, merging, encoding and expansion.

    HeldSegment   = part  origin  count  bitmap  values  keep  frame: MessageBuffer?
    MessageBuffer = buffer: room for headers | index | values       # a whole message that carries this segment alone

A part is a range of slots, one for each unit (a row or an element of the tensor). A segment has a bit for each slot of
its part, set where the unit is present, and the values [count, width] of present units in ascending slot order.
``origin`` is the rank that a segment came from: its sender, or under one-shot aggregation the rank that held it when
the phase began; this rank for its own.

Kernels in C++ do the work; this module owns the buffers. Kernels write values straight into a message's frame, so that
a message of one segment is sent without a copy, and to many peers from one buffer. Segments have addresses instead of
tensors, since making a view of a tensor costs more than most of the work here.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from zenc.rank_ir.ir import Exchange, SegmentSpec
from zenc.runtime.call.layout import Contribution, Layout
from zenc.runtime.cpu.geometry import Geometry
from zenc.runtime.cpu.kernels import NO_PART, Expected, Kernels, Outgoing
from zenc.runtime.transports.block_pool import own_room
from zenc.scheme.model import Format
from zenc.wire.constants import WIRE_NUMBERS
from zenc.wire.formats import BY_BYTES, FormatCosts, index_bytes, padded, wire_format, wire_layout
from zenc.wire.structs import MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES

HEADER_GAP = MESSAGE_HEADER_BYTES + SEGMENT_HEADER_BYTES
"""Bytes before the index of a message with one segment."""


MakeRoom: TypeAlias = Callable[[int], torch.Tensor]


@dataclass(slots=True)
class MessageBuffer:
    """A message around one segment's values: the first ``size`` bytes of ``buffer``.

    Header and index are filled in when the message is first sent.
    """

    buffer: torch.Tensor
    size: int
    format: Format
    asked: Format | None
    """The format that the phase asked for, of which ``format`` is the choice; None if the segment came in a message."""
    has_index: bool = False
    sealed: bool = False
    """True once the frame has this rank's headers."""

    def message(self) -> torch.Tensor:
        """Return the message as a uint8 tensor [bytes]."""
        return self.buffer if self.size == self.buffer.numel() else self.buffer[: self.size]


@dataclass(slots=True)  # not frozen: twice as fast to make; never changed all the same
class HeldSegment:
    """A segment of ``part`` with ``count`` units: addresses of its bitmap and values, and in ``keep`` their owners."""

    part: int
    origin: int
    count: int
    bitmap: int
    values: int
    keep: object
    frame: MessageBuffer | None
    wire: tuple[int, int] | None = None
    """The address and the bytes of encoded values, which travel in place of ``values``."""
    own: torch.Tensor | None = None
    """The memory of ``values`` [bytes], where it has nothing else: such values are never sent."""

    def bytes_of_values(self, unit_bytes: int) -> int:
        """Return the bytes of the segment's values in a message."""
        return self.count * unit_bytes if self.wire is None else self.wire[1]


class SegmentOps:
    """Operations on segments of tensors of one layout and dtype, by ``kernels``. They are kept from call to call.

    Every ``format`` argument is the one in which the new segment is expected to be sent first; it decides the layout of
    its frame only. With None the segment is not sent, and has no frame. ``room`` makes a tensor of as many bytes for a
    message. ``ordered``: there is one part, whose slots are the units. ``costs`` decide formats.
    """

    def __init__(
        self,
        kernels: Kernels,
        geometry: Geometry,
        layout: Layout,
        room: MakeRoom = own_room,
        ordered: bool = False,
        costs: FormatCosts = BY_BYTES,
    ) -> None:
        self.kernels, self.geometry, self.layout, self.room, self.costs = kernels, geometry, layout, room, costs
        self.ordered, self.shares = ordered, room is not own_room
        """True where peers may read the values of segments, and this rank those of peers."""
        self.dtype = layout.dtype_name
        self.slots = tuple(geometry.slots_of(part) for part in range(geometry.parts))
        self.part_words, self.words = geometry.part_words, geometry.words
        """Words of 64 bits in the bitmap of one part, and in the bitmaps of all."""
        self.counts_type = ctypes.c_uint64 * self.words
        self.bitmap_bytes = 8 * self.part_words
        self.unit_bytes = layout.width * layout.dtype.itemsize
        self.expected: dict[int, Expected] = {}
        """The expected contents, by the address of the first buffer of a step."""

    def cut_at(self, ends: Sequence[int]) -> SegmentOps:
        """Return the operations on the same tensors where parts are ranges that end at the units ``ends``."""
        geometry = self.kernels.cut_at(self.geometry, ends)
        return SegmentOps(self.kernels, geometry, self.layout, self.room, costs=self.costs)

    def pack(
        self, contribution: Contribution, divisor: int, rank: int, formats: Sequence[Format | None]
    ) -> list[HeldSegment]:
        """Return one segment for each part, from this rank's own gradient, each value divided by ``divisor``.

        Mark the slots of all units that are present; count the marks before each word of the bitmaps (their rank),
        which gives the units of each segment; place the values. The bitmap of the first segment is that of all, and
        goes on in those of the others. Zeros of a dense gradient become +0.
        """
        kernels, geometry, words = self.kernels, self.geometry, self.words
        ids, values = contribution.unit_ids, contribution.values.data_ptr()
        n = 0 if ids is None else ids.numel()
        scratch = torch.empty(
            2 * words + n, dtype=torch.int64, device="cpu"
        )  # marks | counts | the slot of each unit id
        marks = scratch.data_ptr()
        counts, slots = marks + 8 * words, marks + 16 * words
        if ids is None:
            kernels.mark_dense(self.dtype, geometry, values, marks)
        else:
            kernels.mark_units(geometry, ids.data_ptr(), n, marks, slots)
        total = kernels.rank(marks, words, counts)
        starts = [*self.counts_type.from_address(counts)[:: self.part_words], total]
        segments = [
            self.framed(part, rank, end - start, marks + part * self.bitmap_bytes, scratch, format)
            for part, ((start, end), format) in enumerate(zip(itertools.pairwise(starts), formats, strict=True))
        ]
        outs = [segment.values for segment in segments]
        if ids is None:
            kernels.place_dense(self.dtype, geometry, values, marks, divisor, outs)
        else:
            kernels.place_units(self.dtype, geometry, slots, n, values, marks, counts, total, divisor, outs)
        return segments

    def marked(self, units: torch.Tensor) -> tuple[int, int, object]:
        """Return the number of different ``units`` [n] int64, the address of their bitmap in all parts, and its owner.

        Raises TensorError ``unit-out-of-range``.
        """
        scratch = torch.empty(2 * self.words + units.numel(), dtype=torch.int64, device="cpu")  # as in ``pack``
        marks = scratch.data_ptr()
        slots = marks + 16 * self.words
        self.kernels.mark_units(self.geometry, units.data_ptr(), units.numel(), marks, slots)
        return self.kernels.rank(marks, self.words, marks + 8 * self.words), marks, scratch

    def framed(
        self, part: int, origin: int, count: int, bitmap: int, keep: object, format: Format | None
    ) -> HeldSegment:
        """Return a segment with a frame of its own, and room for its values; ``keep`` owns the bitmap."""
        if format is None:
            room = own_room(max(1, count * self.unit_bytes))  # an empty tensor has no address
            return HeldSegment(part, origin, count, bitmap, room.data_ptr(), (keep, room), None, own=room)
        chosen, index_size, body_size = wire_layout(format, self.slots[part], count, self.unit_bytes, self.costs)
        size = HEADER_GAP + body_size
        buffer = self.room(size)
        values = buffer.data_ptr() + HEADER_GAP + index_size
        frame = MessageBuffer(buffer, size, chosen, format)
        return HeldSegment(part, origin, count, bitmap, values, (keep, buffer), frame)

    def merge(self, segments: list[HeldSegment], origin: int, format: Format | None) -> HeldSegment:
        """Return the sum of segments of one part, added in the order given."""
        bitmaps, values = [segment.bitmap for segment in segments], [segment.values for segment in segments]
        union = torch.empty(self.part_words, dtype=torch.int64, device="cpu")
        count = self.kernels.union(bitmaps, self.part_words, union.data_ptr())
        merged = self.framed(segments[0].part, origin, count, union.data_ptr(), union, format)
        self.kernels.merge(self.dtype, bitmaps, values, self.part_words, self.layout.width, merged.values)
        return merged

    def filled(self, segment: HeldSegment, format: Format, marks: bool = False) -> HeldSegment:
        """Return ``segment`` with the slots that ``format`` fills up as +0: those of its blocks, or all (dense).

        With ``marks`` they become -0, and zeros of the segment +0.
        """
        slots, bitmap = self.slots[segment.part], torch.zeros(self.part_words, dtype=torch.int64, device="cpu")
        if format.block:
            count = self.kernels.fill_blocks(segment.bitmap, slots, format.block, bitmap.data_ptr())
        else:
            count = self.kernels.fill_bitmap(bitmap.data_ptr(), slots)
        if segment.count == count and not marks:
            return segment
        filled = self.framed(segment.part, segment.origin, count, bitmap.data_ptr(), bitmap, format)
        bitmaps = segment.bitmap, filled.bitmap
        self.kernels.spread(self.dtype, *bitmaps, slots, self.layout.width, segment.values, filled.values)
        if marks:
            self.kernels.mark_absent(self.dtype, *bitmaps, slots, self.layout.width, filled.values)
        return filled

    def sparsify(self, segment: HeldSegment, format: Format | None, marked: bool = False) -> HeldSegment:
        """Return ``segment`` without the units that are all zero; if ``marked`` without those that are all -0."""
        words, width = self.part_words, self.layout.width
        bitmap = torch.empty(words, dtype=torch.int64, device="cpu")
        of = segment.bitmap, words, width, segment.values, bitmap.data_ptr()
        count = self.kernels.mark_nonzero(self.dtype, *of, marked)
        if count == segment.count:
            return segment
        sparse = self.framed(segment.part, segment.origin, count, bitmap.data_ptr(), bitmap, format)
        bitmaps = segment.bitmap, sparse.bitmap
        self.kernels.copy_kept(self.dtype, *bitmaps, words, width, segment.values, sparse.values)
        return sparse

    def wire_format(self, part: int, count: int, format: Format) -> Format:
        """Return the format in which a segment of ``count`` units travels when the phase says ``format``."""
        return wire_format(format, self.slots[part], count, self.costs)

    def measure(self, part: int, count: int, format: Format, value_bytes: int | None = None) -> tuple[int, int]:
        """Return the bytes of the index, and of the whole body (index and values), of a segment of ``count`` units.

        ``value_bytes``: those of encoded values.
        """
        index = index_bytes(format, self.slots[part], count)
        return index, index + padded(count * self.unit_bytes if value_bytes is None else value_bytes)

    def seal(self, segments: list[HeldSegment], head: bytes) -> None:
        """Complete the frames of ``segments``: headers, with the common ``head``, index, and padding."""
        slots, unit_bytes = self.slots, self.unit_bytes
        messages: list[Outgoing] = []
        for segment in segments:
            part, count, frame = segment.part, segment.count, segment.frame
            assert frame is not None
            size = segment.bytes_of_values(unit_bytes)
            facts = (slots[part], count, size, part, segment.origin, WIRE_NUMBERS[frame.format])
            messages.append((frame.buffer.data_ptr(), segment.bitmap, *facts, frame.has_index))
        self.kernels.seal(head, messages)

    def expect(self, step: Exchange, buffers: Sequence[torch.Tensor], specs: Sequence[SegmentSpec]) -> Expected:
        """Return the contents that the kernel ``open`` expects in ``buffers`` [bytes] each, which must not move."""
        place = buffers[0].data_ptr()
        expected = self.expected.get(place)
        if expected is None:
            messages = []
            for buffer, message in zip(buffers, step.receives, strict=True):
                part = specs[message.segments[0]].part
                only_part = part if len(message.segments) == 1 else NO_PART
                messages.append((buffer.data_ptr(), message.peer, only_part, self.slots[part], buffer.numel()))
            expected = self.expected[place] = Expected(messages)
        return expected

    def encode(self, segment: HeldSegment, format: Format, out: int) -> None:
        """Write the body of ``segment`` in a wire format to the address ``out``; see ``measure`` for its size."""
        slots, size = self.slots[segment.part], segment.bytes_of_values(self.unit_bytes)
        values = segment.values if segment.wire is None else segment.wire[0]
        self.kernels.encode(format, segment.bitmap, slots, segment.count, values, size, out)

    def bitmaps(self, count: int) -> torch.Tensor:
        """Return zeros for the bitmaps of ``count`` segments, int64 [count * words], to be decoded into."""
        return torch.zeros(count * self.part_words, dtype=torch.int64, device="cpu")

    def decode(
        self,
        part: int,
        origin: int,
        count: int,
        format: Format,
        body: int,
        bitmap: int,
        keep: object,
        frame: MessageBuffer | None,
    ) -> HeldSegment:
        """Return the segment whose body is at the address ``body``.

        Its values stay there, its bitmap goes to ``bitmap``.

        ``frame`` is the message that it came in, if it came alone: it can be passed on as it is.
        Raises SynchronisationError for a malformed one.
        """
        slots = self.slots[part]
        self.kernels.decode_index(format, body, slots, count, bitmap)
        return HeldSegment(part, origin, count, bitmap, body + index_bytes(format, slots, count), keep, frame)

    def expand_into(self, segments: Sequence[HeldSegment], own: int, tensor: torch.Tensor) -> None:
        """Turn ``tensor`` [units, width] into the complete ``segments`` of all parts, or of some; absent units are +0.

        ``own``: the bitmap of other units that it may have.
        """
        bitmap, values = self._joined_bitmaps(segments), self._values_by_part(segments)
        self.kernels.expand_dense(self.dtype, self.geometry, bitmap.data_ptr(), values, own, tensor.data_ptr())

    def expand_units(self, segments: Sequence[HeldSegment]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the complete ``segments`` of all or some parts as ascending unit ids [k] and values [k, width]."""
        bitmap = self._joined_bitmaps(segments)
        count = sum([segment.count for segment in segments])
        ids, rows = torch.empty(count, dtype=torch.int64, device="cpu"), self._rows(segments, count)
        output = ids.data_ptr(), rows.data_ptr()
        values = self._values_by_part(segments)
        self.kernels.expand_units(self.dtype, self.geometry, bitmap.data_ptr(), values, *output)
        return ids, rows

    def _values_by_part(self, segments: Sequence[HeldSegment]) -> list[int]:
        of_part = {segment.part: segment.values for segment in segments}
        return [of_part.get(part, 0) for part in range(self.geometry.parts)]

    def _rows(self, segments: Sequence[HeldSegment], count: int) -> torch.Tensor:
        """Return room [count, width] for the rows of ``segments``: that of the only one, if they lie there in order."""
        width, dtype = self.layout.width, self.layout.dtype
        own = segments[0].own if self.ordered and len(segments) == 1 else None
        if own is None or not count or own.data_ptr() != segments[0].values:
            own = own_room(count * self.unit_bytes)
        return own.view(dtype).view(count, width)

    def _joined_bitmaps(self, segments: Sequence[HeldSegment]) -> torch.Tensor:
        all_there = len(segments) == self.geometry.parts
        bitmap = (torch.empty if all_there else torch.zeros)(self.words, dtype=torch.int64, device="cpu")
        base, size = bitmap.data_ptr(), self.bitmap_bytes
        for segment in segments:
            ctypes.memmove(base + segment.part * size, segment.bitmap, size)
        return bitmap
