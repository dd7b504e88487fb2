"""One call, played by one rank: the program's steps over a transport, with the target's kernels in between.

The semantics are those of ``zenc.plan.model``; what the verifier plays with sets is played here with segments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from zenc.errors import Diagnostic, SynchronisationError
from zenc.plan.formats import MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES
from zenc.plan.program import Message, Piece, Program, Step
from zenc.runtime.segments import Segment, Workshop
from zenc.runtime.stats import PhaseStats
from zenc.runtime.transport import EAGER_BYTES, Pending, Transport
from zenc.runtime.wire import (
    Envelope,
    SegmentHeader,
    corrupt,
    message_header,
    read_message_header,
    read_segment_headers,
)
from zenc.scheme.model import Format

ROUND_BITS = 14
"""Tags are 31 bits: the call modulo 2^16, the round, and which packet of a message."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What of the plan a call needs to know; ``deadline`` in seconds bounds every single wait."""

    scheme: str
    one_shot: bool
    push: Format
    pull: Format
    deadline: float


class Exchange:
    """The state of one call on one rank: for every part the segments that it holds."""

    def __init__(
        self, rules: Rules, program: Program, transport: Transport, workshop: Workshop, call: Envelope
    ) -> None:
        self.rules, self.program, self.transport, self.workshop, self.call = rules, program, transport, workshop, call
        self.held: dict[int, list[Segment]] = {}
        self.push_stats, self.pull_stats = PhaseStats(), PhaseStats()
        self.sending: list[tuple[Pending, int, int]] = []

    def run(self, own: list[Segment]) -> list[Segment]:
        """From this rank's own segments, one a part, to the complete ones."""
        dense = self.rules.push is Format.DENSE
        self.held = {segment.part: [self.workshop.densify(segment) if dense else segment] for segment in own}
        self._phase(self.program.push, self.rules.push, self.push_stats, self._join)
        self._finish_push()
        self._phase(self.program.pull, self.rules.pull, self.pull_stats, self._replace)
        return [self.held[part][0] for part in sorted(self.held)]

    def _phase(
        self, steps: Iterable[Step], format: Format, stats: PhaseStats, take: Callable[[list[Segment]], None]
    ) -> None:
        started = time.perf_counter()
        for step in steps:
            take(self._step(step, format, stats))
        stats.seconds += time.perf_counter() - started

    def _step(self, step: Step, format: Format, stats: PhaseStats) -> list[Segment]:
        """Post everything, then take what comes: first packets in order, then the rest of the long messages."""
        arriving = [self._await_first(message, step) for message in step.receives]
        for message in step.sends:
            self._send(message, step, format, stats)
        long = [
            self._take_first(packet, message, step) for packet, message in zip(arriving, step.receives, strict=True)
        ]
        found: list[Segment] = []
        for arrival, message in zip(long, step.receives, strict=True):
            found += self._take(arrival, message, step, stats)
        self._finish_sends(step)
        return found

    def _send(self, message: Message, step: Step, format: Format, stats: PhaseStats) -> None:
        segments = [segment for piece in message.pieces for segment in self._pieces(piece)]
        buffer = self._encoded(segments, format, stats)
        stats.sent(buffer.numel())
        first = buffer[:EAGER_BYTES]
        for packet, part in enumerate((first, buffer[EAGER_BYTES:])):
            if part.numel():
                pending = self.transport.send(message.peer, self._tag(step, packet), part)
                self.sending.append((pending, message.peer, buffer.numel()))

    def _pieces(self, piece: Piece) -> list[Segment]:
        """What is held of a part; of one contributor, if the piece names one."""
        return [s for s in self.held[piece.part] if piece.origin < 0 or s.origin == piece.origin]

    def _encoded(self, segments: list[Segment], format: Format, stats: PhaseStats) -> torch.Tensor:
        """A whole message: headers, then bodies, each aligned to 8 bytes."""
        workshop = self.workshop
        formats = [workshop.wire_format(segment, format) for segment in segments]
        headers = [SegmentHeader(s.part, s.origin, f, s.count) for s, f in zip(segments, formats, strict=True)]
        sizes = [workshop.body_bytes(h.part, h.count, h.format) for h in headers]
        at = MESSAGE_HEADER_BYTES + SEGMENT_HEADER_BYTES * len(headers)
        buffer = torch.empty(at + sum(sizes), dtype=torch.uint8)
        head = message_header(self.call, self.transport.rank, headers, buffer.numel())
        buffer[:at] = torch.frombuffer(bytearray(head), dtype=torch.uint8)
        for segment, header, size in zip(segments, headers, sizes, strict=True):
            workshop.encode(segment, header.format, buffer[at:])
            stats.body_sent(header.format, header.part, header.count, size)
            at += size
        return buffer

    def _await_first(self, message: Message, step: Step) -> tuple[Pending, torch.Tensor]:
        buffer = torch.empty(EAGER_BYTES, dtype=torch.uint8)
        return self._posted(message, step, 0, buffer), buffer

    def _posted(self, message: Message, step: Step, packet: int, buffer: torch.Tensor) -> Pending:
        return self.transport.receive(message.peer, self._tag(step, packet), buffer)

    def _take_first(
        self, packet: tuple[Pending, torch.Tensor], message: Message, step: Step
    ) -> tuple[Pending | None, torch.Tensor]:
        """Wait for a first packet; returns the buffer of the whole message, and its rest where one is under way."""
        pending, first = packet
        self._wait(pending, message.peer, step, None)
        head = bytes(first[:MESSAGE_HEADER_BYTES].tolist())
        _, total = read_message_header(head, message.peer, self.call)
        if total <= EAGER_BYTES:
            return None, first[:total]
        whole = torch.empty(total, dtype=torch.uint8)
        whole[:EAGER_BYTES] = first
        return self._posted(message, step, 1, whole[EAGER_BYTES:]), whole

    def _take(
        self, arrival: tuple[Pending | None, torch.Tensor], message: Message, step: Step, stats: PhaseStats
    ) -> list[Segment]:
        rest, whole = arrival
        if rest is not None:
            self._wait(rest, message.peer, step, whole.numel())
        stats.received(whole.numel())
        return self._decoded(whole, message, stats)

    def _decoded(self, whole: torch.Tensor, message: Message, stats: PhaseStats) -> list[Segment]:
        sender, size = message.peer, whole.numel()
        count, _ = read_message_header(bytes(whole[:MESSAGE_HEADER_BYTES].tolist()), sender, self.call)
        at = MESSAGE_HEADER_BYTES + SEGMENT_HEADER_BYTES * count
        headers = read_segment_headers(bytes(whole[:at].tolist()), count, sender)
        self._demand_expected(headers, message)
        sizes = [self.workshop.body_bytes(h.part, h.count, h.format) for h in headers]
        if at + sum(sizes) != size:
            raise corrupt(sender, f"it has {size} bytes, and its segments need {at + sum(sizes)}")
        found = []
        for header, length in zip(headers, sizes, strict=True):
            origin = header.origin if self.rules.one_shot else sender
            found.append(
                self.workshop.decode(header.part, origin, header.count, header.format, whole[at : at + length])
            )
            stats.body_received(header.format, length)
            at += length
        return found

    def _demand_expected(self, headers: list[SegmentHeader], message: Message) -> None:
        """The parts (and under one-shot the origins) that the plan says, and none twice."""
        expected = {piece.part for piece in message.pieces}
        came = [(header.part, header.origin) for header in headers]
        sound = all(
            header.count <= self.workshop.geometry.slots_of(header.part)
            for header in headers
            if header.part in expected
        )
        if {part for part, _ in came} != expected or len(set(came)) != len(came) or not sound:
            raise corrupt(message.peer, f"it holds other parts than the plan says ({len(headers)} segments)")

    def _join(self, arrived: list[Segment]) -> None:
        """The push: merge at once, in the order of the holders; or collect, under one-shot."""
        by_part: dict[int, list[Segment]] = {}
        for segment in arrived:
            by_part.setdefault(segment.part, []).append(segment)
        for part, segments in by_part.items():
            segments = sorted([*self.held[part], *segments], key=lambda segment: segment.origin)
            self.held[part] = segments if self.rules.one_shot else [self._merged(segments)]

    def _merged(self, segments: list[Segment]) -> Segment:
        return self.workshop.merge(segments, self.transport.rank)

    def _finish_push(self) -> None:
        """Merge what was collected, and make dense what the pull sends dense; what the pull brings is left."""
        brought = {piece.part for step in self.program.pull for message in step.receives for piece in message.pieces}
        started = time.perf_counter()
        for part, segments in self.held.items():
            if part not in brought:
                complete = self._merged(segments)
                dense = self.rules.pull is Format.DENSE
                self.held[part] = [self.workshop.densify(complete) if dense else complete]
        self.push_stats.seconds += time.perf_counter() - started

    def _replace(self, arrived: list[Segment]) -> None:
        """The pull: what arrives is complete."""
        for segment in arrived:
            self.held[segment.part] = [segment]

    def _finish_sends(self, step: Step) -> None:
        for pending, peer, size in self.sending:
            self._wait(pending, peer, step, size, sending=True)
        self.sending.clear()

    def _tag(self, step: Step, packet: int) -> int:
        return (self.call.call & 0xFFFF) << ROUND_BITS + 1 | (step.number & (1 << ROUND_BITS) - 1) << 1 | packet

    def _wait(self, pending: Pending, peer: int, step: Step, size: int | None, sending: bool = False) -> None:
        started = time.perf_counter()
        try:
            pending.wait(self.rules.deadline)
        except RuntimeError as error:
            waited = time.perf_counter() - started
            raise self._lost(peer, step, size, sending, waited, error) from error

    def _lost(
        self, peer: int, step: Step, size: int | None, sending: bool, waited: float, error: RuntimeError
    ) -> SynchronisationError:
        late = waited >= self.rules.deadline * 0.95
        what = "a message" if size is None else f"a message of {size:,} bytes"
        where = f"scheme {self.rules.scheme}, step {step.number}, call {self.call.call}"
        toward = f"{what} to rank {peer}" if sending else f"{what} from rank {peer}"
        if late:
            message = f"{toward} did not get through within the deadline of {self.rules.deadline:g} s ({where})"
            help = "see whether that rank is alive and makes the same calls; deadline= sets how long to wait"
            return SynchronisationError(Diagnostic("deadline", message, help=help))
        message = f"{toward} was lost, since a connection ended ({where})"
        notes = (str(error).splitlines()[0][:200],)
        help = "a rank has died or given up: its own output says why"
        return SynchronisationError(Diagnostic("peer-lost", message, notes=notes, help=help))
