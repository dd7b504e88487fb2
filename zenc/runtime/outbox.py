"""The messages that a rank sends.

A message of one segment is sent from the segment's own frame, without a copy, and to every peer from the same bytes;
one that came alone is passed on as it came, under a new header. Messages of several segments are put together.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TypeAlias

import torch

from zenc.plan.formats import MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES
from zenc.plan.program import Step
from zenc.runtime.link import Link
from zenc.runtime.segments import HEADER_GAP, Frame, Segment, Workshop
from zenc.runtime.stats import PhaseStats
from zenc.runtime.transport import EAGER_BYTES, Pending
from zenc.runtime.wire import SegmentHeader, message_header
from zenc.scheme.model import Format

Parcel: TypeAlias = tuple[int, Sequence[Segment]]
"""A peer, and the segments that one message brings it."""


class Outbox:
    """Sends what one rank has to send in one call."""

    def __init__(self, link: Link, workshop: Workshop) -> None:
        self.link, self.workshop = link, workshop
        self.sending: list[tuple[Pending, int, int]] = []

    def send(self, step: Step, parcels: Sequence[Parcel], format: Format, stats: PhaseStats) -> None:
        """Send every parcel as one message; ``finish`` waits for them."""
        send, tag = self.link.transport.send, self.link.tag(step, 0)
        for peer, buffer in self._messages(parcels, format, stats):
            size = buffer.numel()
            stats.sent(size)
            if size <= EAGER_BYTES:
                self.sending.append((send(peer, tag, buffer), peer, size))
            else:
                self.sending.append((send(peer, tag, buffer[:EAGER_BYTES]), peer, size))
                self.sending.append((send(peer, self.link.tag(step, 1), buffer[EAGER_BYTES:]), peer, size))

    def finish(self, step: Step) -> None:
        """Wait until all that was sent in ``step`` is on its way, so that its buffers may change."""
        for pending, peer, size in self.sending:
            self.link.wait(pending, peer, step, size, sending=True)
        self.sending.clear()

    def _messages(self, parcels: Sequence[Parcel], format: Format, stats: PhaseStats) -> list[tuple[int, torch.Tensor]]:
        """(peer, message) of every parcel; the frames of those of one segment are sealed all at once."""
        messages: list[tuple[int, torch.Tensor]] = []
        unsealed: list[Segment] = []
        for peer, segments in parcels:
            frame = self._frame(segments, format)
            if frame is None:
                messages.append((peer, self._together(segments, format, stats)))
                continue
            if not frame.sealed:
                frame.sealed = True
                unsealed.append(segments[0])
            stats.body_sent(frame.format, frame.size - HEADER_GAP)
            messages.append((peer, frame.message()))
        if unsealed:
            self.workshop.seal(unsealed, self.link.head)
        return messages

    def _frame(self, segments: Sequence[Segment], format: Format) -> Frame | None:
        """The frame of a segment that travels alone; None if it has none, or one laid out for another format."""
        if len(segments) != 1:
            return None
        segment, frame = segments[0], segments[0].frame
        if frame is None or frame.asked is format:
            return frame
        return frame if frame.format is self.workshop.wire_format(segment.part, segment.count, format) else None

    def _together(self, segments: Sequence[Segment], format: Format, stats: PhaseStats) -> torch.Tensor:
        formats = [self.workshop.wire_format(s.part, s.count, format) for s in segments]
        headers = [SegmentHeader(s.part, s.origin, f, s.count) for s, f in zip(segments, formats, strict=True)]
        sizes = [self.workshop.measure(h.part, h.count, h.format)[1] for h in headers]
        at = MESSAGE_HEADER_BYTES + SEGMENT_HEADER_BYTES * len(headers)
        buffer = torch.empty(at + sum(sizes), dtype=torch.uint8)
        address = buffer.data_ptr()
        head = message_header(self.link.call, self.link.transport.rank, headers, buffer.numel())
        ctypes.memmove(address, head, len(head))
        for segment, header, size in zip(segments, headers, sizes, strict=True):
            self.workshop.encode(segment, header.format, address + at)
            stats.body_sent(header.format, size)
            at += size
        return buffer
