"""Coded segments: values that travel as the bytes of a code, and units of a sum that are not passed on.

    body = index | encoded values | zeros to 8 bytes        # zenc.wire.codes

A segment that was encoded holds its bytes, in the frame of a message, and beside them the values that they mean: these
are added and expanded, here as on every rank that gets the bytes. The loss goes to this rank's residual.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch

from zenc.rank_ir.ir import SegmentSpec
from zenc.runtime.cpu.segments import HEADER_GAP, HeldSegment, MessageBuffer, SegmentOps
from zenc.runtime.lossy.cpu_contribution import marked
from zenc.runtime.lossy.kernels import CompressionKernels
from zenc.runtime.lossy.losses import CallLosses
from zenc.runtime.lossy.supports import takes_greatest
from zenc.runtime.transports.block_pool import own_room
from zenc.scheme.compression import Code, Fixed, Selection
from zenc.scheme.model import Format
from zenc.wire.codes import encoded_bytes, is_static, most_encoded_bytes
from zenc.wire.formats import most_body_bytes, padded, wire_layout

LENGTH_BYTES = 8
"""Bytes of the length that encoded values begin with, where it depends on them."""


class CodedOps:
    """Operations on coded segments of tensors of one layout, kept from call to call."""

    def __init__(self, ops: SegmentOps, kernels: CompressionKernels) -> None:
        self.ops, self.kernels = ops, kernels
        self._units: dict[int, range | torch.Tensor] = {}

    def encode(
        self,
        segment: HeldSegment,
        spec: SegmentSpec,
        code: Code,
        format: Format | None,
        key: int,
        residual: torch.Tensor | None,
        valued: bool = True,
    ) -> HeldSegment:
        """Return ``segment`` as bytes of ``code``, in a frame for ``format``, and if ``valued`` with their values.

        What is lost is added to ``residual`` [elements], if there is one.
        """
        ops, count = self.ops, segment.count * self.ops.layout.width
        slots = ops.slots[segment.part]
        chosen, index, _ = wire_layout(format or Format.AUTO, slots, segment.count, 0, ops.costs)
        room = padded(most_encoded_bytes(code, count, len(spec.ranks)))
        buffer = ops.room(HEADER_GAP + index + room)
        at = buffer.data_ptr() + HEADER_GAP + index
        decoded = None if isinstance(code, Fixed) or not valued else self._room(segment.count)
        meaning = 0 if decoded is None else decoded.data_ptr()
        loss = None if residual is None or isinstance(code, Fixed) else self._loss_of(residual, segment)
        size = self.kernels.encode(
            code,
            ops.dtype,
            count,
            segment.values,
            at,
            meaning,
            0 if loss is None else loss.data_ptr(),
            key,
            len(spec.ranks),
        )
        frame = MessageBuffer(buffer, HEADER_GAP + index + padded(size), chosen, format)
        wire = at, size
        bitmap, keep = segment.bitmap, (segment.keep, buffer, decoded)
        if not isinstance(code, Fixed):  # the values are others now, and only the marks are needed of what there was
            marks = torch.empty(ops.part_words, dtype=torch.int64, device="cpu")
            ctypes.memmove(marks.data_ptr(), bitmap, ops.bitmap_bytes)
            bitmap, keep = marks.data_ptr(), (marks, buffer, decoded)
        if residual is not None and loss is not None and loss.data_ptr() != self._place(residual, segment):
            self._keep(residual, segment, loss)
        values = segment.values if isinstance(code, Fixed) else meaning
        return HeldSegment(segment.part, spec.origin, segment.count, bitmap, values, keep, frame, wire)

    def _loss_of(self, residual: torch.Tensor, segment: HeldSegment) -> torch.Tensor:
        """Return room [count, width] float32 to add a loss to: zeros, or the segment's place in ``residual``."""
        width = self.ops.layout.width
        if not (at := self._place(residual, segment)):
            return torch.zeros(segment.count, width, dtype=torch.float32, device="cpu")
        first = (at - residual.data_ptr()) // 4
        return residual[first : first + segment.count * width].view(-1, width)

    def _place(self, residual: torch.Tensor, segment: HeldSegment) -> int:
        """Return the address in ``residual`` of the units of ``segment``; 0 unless they all lie there in its order."""
        if segment.count < self.ops.slots[segment.part] or not segment.count:
            return 0
        units = self.units_of(segment.part)
        return residual.data_ptr() + 4 * units.start * self.ops.layout.width if isinstance(units, range) else 0

    def decoded(self, segment: HeldSegment) -> HeldSegment:
        """Return ``segment`` without its bytes."""
        return HeldSegment(
            segment.part, segment.origin, segment.count, segment.bitmap, segment.values, segment.keep, None
        )

    def is_finite(self, segment: HeldSegment) -> bool:
        """Return whether all values of ``segment`` are finite."""
        return self.kernels.is_finite(self.ops.dtype, segment.count * self.ops.layout.width, segment.values)

    def averaged(self, segment: HeldSegment, ranks: int, in_place: bool = True) -> bool:
        """Divide the values of ``segment`` by ``ranks``; return whether the sums were finite.

        Where it is not ``in_place``, or peers may read them, the result is a copy. Otherwise no other segment may need
        them any more, and no message over the wire.
        """
        finite = self.is_finite(segment)
        if segment.count and ranks > 1:
            values = self.values(segment)
            if in_place and not self.ops.shares:
                values.div_(ranks)
            else:
                mean = values / ranks
                segment.values, segment.keep = mean.data_ptr(), (segment.keep, mean)
        return finite

    def select(
        self,
        segment: HeldSegment,
        selection: Sequence[Selection],
        format: Format | None,
        key: int,
        losses: CallLosses,
        residual: torch.Tensor | None,
    ) -> HeldSegment:
        """Return ``segment`` with the units of its part that ``selection`` takes; others go to ``residual`` [elements].

        Absent slots count as zeros: a share is one of the whole part.
        """
        if not segment.count:
            return segment
        chosen_by, slots = losses.chosen(selection), self.ops.slots[segment.part]
        if not chosen_by:
            return segment
        values, held = self.values(segment), self._held(segment)
        left = values.to(torch.float32, copy=True)
        draw = losses.draw(slots, key)
        if held is None or takes_greatest(chosen_by):
            marks = marked(self.kernels, left, chosen_by, draw, whole=slots)
        else:
            of_part = left.new_zeros(slots, left.shape[1]).index_copy_(0, held, left)
            marks = _bits_at(marked(self.kernels, of_part, chosen_by, draw), held)
        room = self._room(segment.count)
        of = segment.count, left.data_ptr(), left.shape[1], marks.data_ptr(), room.data_ptr()
        self.kernels.take_rows(self.ops.dtype, *of)
        if residual is not None:
            self._keep(residual, segment, left)
        at, keep = room.data_ptr(), (segment.keep, room)
        chosen = HeldSegment(segment.part, segment.origin, segment.count, segment.bitmap, at, keep, None)
        return self.ops.sparsify(chosen, format)

    def bytes_of(self, code: Code, spec: SegmentSpec, count: int, at: int, room: int) -> int:
        """Return the bytes of ``count`` units at ``at``, where ``room`` bytes are; below 0 for impossible ones."""
        values = count * self.ops.layout.width
        if is_static(code):
            return encoded_bytes(code, values, len(spec.ranks))
        if not values:
            return 0
        said = int(ctypes.c_int64.from_address(at).value) if room >= LENGTH_BYTES else -1
        return said if said <= most_encoded_bytes(code, values, len(spec.ranks)) else -1

    def most_bytes(self, code: Code, spec: SegmentSpec) -> int:
        """Return the bytes of the heaviest body of a segment as ``spec`` describes."""
        slots = self.ops.slots[spec.part]
        return most_body_bytes(slots, 0) + padded(
            most_encoded_bytes(code, slots * self.ops.layout.width, len(spec.ranks))
        )

    def open(self, segment: HeldSegment, code: Code, spec: SegmentSpec, size: int) -> HeldSegment:
        """Return ``segment``, whose ``values`` are ``size`` bytes of ``code``, with their decoded values instead."""
        count = segment.count * self.ops.layout.width
        decoded = self._room(segment.count)
        of = segment.values, size, decoded.data_ptr(), len(spec.ranks)
        self.kernels.decode(code, self.ops.dtype, count, *of)
        segment.wire = segment.values, size
        segment.values, segment.keep = decoded.data_ptr(), (segment.keep, decoded)
        return segment

    @cached_property
    def full(self) -> tuple[int, object]:
        """The address of a bitmap of all parts in which all slots are occupied, and the owner of its memory."""
        ops = self.ops
        bitmap = torch.zeros(max(1, ops.words), dtype=torch.int64, device="cpu")
        for part, slots in enumerate(ops.slots):
            ops.kernels.fill_bitmap(bitmap.data_ptr() + part * ops.bitmap_bytes, slots)
        return bitmap.data_ptr(), bitmap

    @cached_property
    def nothing(self) -> tuple[int, object]:
        """The address of a bitmap of all parts in which no slot is occupied, and the owner of its memory."""
        bitmap = torch.zeros(max(1, self.ops.words), dtype=torch.int64, device="cpu")
        return bitmap.data_ptr(), bitmap

    def _room(self, units: int) -> torch.Tensor:
        return own_room(max(1, units * self.ops.unit_bytes))

    def values(self, segment: HeldSegment) -> torch.Tensor:
        """Return a view of the values [count, width] of ``segment``, which is not empty."""
        data = (ctypes.c_char * (segment.count * self.ops.unit_bytes)).from_address(segment.values)
        return torch.frombuffer(data, dtype=self.ops.layout.dtype).view(segment.count, self.ops.layout.width)

    def _keep(self, residual: torch.Tensor, segment: HeldSegment, loss: torch.Tensor) -> None:
        """Add ``loss`` [count, width], of the units of ``segment``, to ``residual``."""
        rows, units = residual.view(-1, self.ops.layout.width), self.units_of(segment.part)
        held = self._held(segment)
        if held is not None:
            rows[held + units.start if isinstance(units, range) else units[held]] += loss
        elif isinstance(units, range):
            rows[units.start : units.stop] += loss
        else:
            rows[units] += loss

    def _held(self, segment: HeldSegment) -> torch.Tensor | None:
        """Return the slots of the units of ``segment``, ascending; None where it has all of its part."""
        slots = self.ops.slots[segment.part]
        if segment.count == slots:
            return None
        words = np.ctypeslib.as_array((ctypes.c_uint8 * (8 * self.ops.part_words)).from_address(segment.bitmap))
        return torch.from_numpy(np.flatnonzero(np.unpackbits(words, bitorder="little")[:slots]))

    def units_of(self, part: int) -> range | torch.Tensor:
        """Return the unit of each slot of ``part``, [slots]: a range where they follow each other."""
        if part not in self._units:
            ops = self.ops
            if ops.geometry.tables and (firsts := ops.geometry.tables.firsts):
                return range(firsts[part], firsts[part] + ops.slots[part])
            slots = torch.arange(ops.slots[part], dtype=torch.int64, device="cpu") + part * ops.geometry.part_slots
            units = torch.empty_like(slots)
            ops.kernels.units_of_slots(ops.geometry, slots.data_ptr(), len(slots), units.data_ptr())
            first = int(units[0]) if len(units) else 0
            follow = bool((units == torch.arange(first, first + len(units), dtype=torch.int64, device="cpu")).all())
            self._units[part] = range(first, first + len(units)) if follow else units
        return self._units[part]


def _bits_at(marks: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """Return bits [ceil(n / 64)] int64: those of ``marks`` at ``slots`` [n]."""
    bits = np.unpackbits(marks.numpy().view(np.uint8), bitorder="little")[slots.numpy()]
    return torch.from_numpy(np.packbits(np.pad(bits, (0, -len(bits) % 64)), bitorder="little").view(np.int64))
