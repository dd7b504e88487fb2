"""Segments in memory: what a rank holds of a part, and how it is packed, encoded, decoded, merged and expanded.

    Segment = part  origin  count  bitmap [words] int64  values (bytes)

``origin`` is the rank that contributed it (one-shot) or holds it (incremental). Values lie in ascending slot order.
The algorithms are the target's (bitmap ranking); this module owns the buffers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from zenc.errors import Diagnostic, InternalError
from zenc.plan.formats import SegmentShape, body_bytes, index_bytes, wire_format
from zenc.runtime.layout import Contribution, Layout
from zenc.scheme.model import Format
from zenc.targets.cpu.kernels import Kernels
from zenc.targets.geometry import Geometry


@dataclass(frozen=True, slots=True)
class Segment:
    part: int
    origin: int
    count: int
    bitmap: torch.Tensor
    values: torch.Tensor
    """uint8, at least count * width * itemsize bytes, aligned to 8; may be a view into a received message."""

    def seen_from(self, origin: int) -> Segment:
        return Segment(self.part, origin, self.count, self.bitmap, self.values)


@dataclass(frozen=True, slots=True)
class Workshop:
    """Makes segments of one call: its kernels, its geometry and its dtype."""

    kernels: Kernels
    geometry: Geometry
    layout: Layout

    @property
    def unit_bytes(self) -> int:
        return self.layout.width * self.layout.dtype.itemsize

    def pack(self, contribution: Contribution, divisor: int, rank: int) -> list[Segment]:
        """One segment a part, from this rank's own gradient: mark, rank, place (each value divided by ``divisor``)."""
        kernels, geometry, dtype = self.kernels, self.geometry, self.layout.dtype_name
        bitmap = torch.empty(geometry.words, dtype=torch.int64)
        before = torch.empty(geometry.words, dtype=torch.int64)
        ids, values = contribution.unit_ids, contribution.values
        slots = torch.empty(0 if ids is None else ids.numel(), dtype=torch.int64)
        if ids is None:
            kernels.mark_dense(dtype, geometry, values.data_ptr(), bitmap.data_ptr())
        else:
            kernels.mark_units(geometry, ids.data_ptr(), ids.numel(), bitmap.data_ptr(), slots.data_ptr())
        total = kernels.rank(bitmap.data_ptr(), geometry.words, before.data_ptr())
        placed = self._value_buffer(total)
        starts = self._starts(before, total)
        outs = [placed.data_ptr() + start * self.unit_bytes for start in starts[:-1]]
        marks = (values.data_ptr(), bitmap.data_ptr(), before.data_ptr())
        if ids is None:
            kernels.place_dense(dtype, geometry, *marks, divisor, outs)
        else:
            kernels.place_units(dtype, geometry, slots.data_ptr(), slots.numel(), *marks, total, divisor, outs)
        return self._cut(bitmap, starts, placed, rank)

    def _starts(self, before: torch.Tensor, total: int) -> list[int]:
        """The first row of each part, and the end of the last."""
        words = self.geometry.part_words
        return [*before[::words].tolist(), total] if words else [0] * (self.geometry.parts + 1)

    def _cut(self, bitmap: torch.Tensor, starts: list[int], placed: torch.Tensor, rank: int) -> list[Segment]:
        words = self.geometry.part_words
        return [
            Segment(
                part, rank, end - start, bitmap[part * words : (part + 1) * words], placed[start * self.unit_bytes :]
            )
            for part, (start, end) in enumerate(zip(starts, starts[1:], strict=False))
        ]

    def densify(self, segment: Segment) -> Segment:
        """The same segment with every slot of its part occupied; absent ones become +0."""
        slots = self.geometry.slots_of(segment.part)
        if segment.count == slots:
            return segment
        values = self._value_buffer(slots)
        self.kernels.densify(
            self.layout.dtype_name, segment.bitmap.data_ptr(), slots, self.layout.width, segment.values.data_ptr(),
            values.data_ptr(),
        )  # fmt: skip
        bitmap = torch.zeros_like(segment.bitmap)
        self.kernels.fill_bitmap(bitmap.data_ptr(), slots)
        return Segment(segment.part, segment.origin, slots, bitmap, values)

    def shape(self, segment: Segment) -> SegmentShape:
        slots = self.geometry.slots_of(segment.part)
        return SegmentShape(slots, segment.count, self.layout.width, self.layout.dtype.itemsize)

    def encode(self, segment: Segment, format: Format, out: torch.Tensor) -> None:
        """Write the body of ``segment`` in a wire format to ``out`` (uint8, ``body_bytes`` long)."""
        shape = self.shape(segment)
        self.kernels.encode(
            format, segment.bitmap.data_ptr(), shape.slots, segment.count, segment.values.data_ptr(),
            shape.value_bytes, out.data_ptr(),
        )  # fmt: skip

    def decode(self, part: int, origin: int, count: int, format: Format, body: torch.Tensor) -> Segment:
        """The segment in ``body``; its values stay where they are. Raises SynchronisationError for a malformed one."""
        slots = self.geometry.slots_of(part)
        bitmap = torch.zeros(self.geometry.part_words, dtype=torch.int64)
        self.kernels.decode_index(format, body.data_ptr(), slots, count, bitmap.data_ptr())
        return Segment(part, origin, count, bitmap, body[index_bytes(format, slots, count) :])

    def body_bytes(self, part: int, count: int, format: Format) -> int:
        slots = self.geometry.slots_of(part)
        return body_bytes(format, SegmentShape(slots, count, self.layout.width, self.layout.dtype.itemsize))

    def wire_format(self, segment: Segment, format: Format) -> Format:
        return wire_format(format, self.geometry.slots_of(segment.part), segment.count)

    def merge(self, segments: list[Segment], origin: int) -> Segment:
        """The sum of segments of one part, added in the order given."""
        if len(segments) == 1:
            return segments[0].seen_from(origin)
        words = self.geometry.part_words
        bitmaps = [segment.bitmap.data_ptr() for segment in segments]
        union = torch.empty(words, dtype=torch.int64)
        count = self.kernels.union(bitmaps, words, union.data_ptr())
        values = self._value_buffer(count)
        inputs = [segment.values.data_ptr() for segment in segments]
        self.kernels.merge(self.layout.dtype_name, bitmaps, inputs, words, self.layout.width, values.data_ptr())
        return Segment(segments[0].part, origin, count, union, values)

    def expand_into(self, segments: list[Segment], tensor: torch.Tensor) -> None:
        """Write the complete segments of all parts to ``tensor``, dense and contiguous; absent units become +0."""
        bitmap, values = self._whole(segments)
        self.kernels.expand_dense(self.layout.dtype_name, self.geometry, bitmap.data_ptr(), values, tensor.data_ptr())

    def expand_units(self, segments: list[Segment]) -> tuple[torch.Tensor, torch.Tensor]:
        """The complete segments of all parts as ascending unit ids [k] and values [k, width]."""
        bitmap, values = self._whole(segments)
        count = sum(segment.count for segment in segments)
        ids = torch.empty(count, dtype=torch.int64)
        rows = torch.empty(count, self.layout.width, dtype=self.layout.dtype)
        self.kernels.expand_units(
            self.layout.dtype_name, self.geometry, bitmap.data_ptr(), values, ids.data_ptr(), rows.data_ptr()
        )
        return ids, rows

    def _whole(self, segments: list[Segment]) -> tuple[torch.Tensor, list[int]]:
        if [segment.part for segment in segments] != list(range(self.geometry.parts)):
            raise InternalError(Diagnostic("internal", "a call ended without all parts"))
        bitmap = torch.cat([segment.bitmap for segment in segments]) if len(segments) > 1 else segments[0].bitmap
        return bitmap, [segment.values.data_ptr() for segment in segments]

    def _value_buffer(self, count: int) -> torch.Tensor:
        return torch.empty(count * self.unit_bytes, dtype=torch.uint8)
