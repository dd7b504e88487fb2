"""One call, played by one rank: the program's steps over a transport, with the target's kernels in between.

The semantics are those of ``zenc.plan.ir``; what the verifier plays with sets is played here with segments.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from operator import attrgetter

from zenc.errors import Diagnostic, SynchronisationError
from zenc.plan.ir import VALUE_KINDS, PhaseKind
from zenc.plan.rank_schedule import Message, RankStep
from zenc.runtime.cpu.channel import Channel
from zenc.runtime.cpu.headers import CallHeader
from zenc.runtime.cpu.inbox import Inbox, Room
from zenc.runtime.cpu.outbox import Outbox
from zenc.runtime.cpu.rank_phases import RankPhase
from zenc.runtime.cpu.segments import HeldSegment, SegmentOps
from zenc.runtime.cpu.transport import Transport
from zenc.runtime.layout import Contribution
from zenc.runtime.output import Summed
from zenc.runtime.ranges import within
from zenc.runtime.stats import PhaseStats
from zenc.scheme.model import Format
from zenc.wire.formats import FILLING

_origin = attrgetter("origin")


class Exchange:
    """The state of one call on one rank: for every part the segments that it holds."""

    def __init__(
        self,
        scheme: str,
        phases: Sequence[RankPhase],
        transport: Transport,
        workshop: SegmentOps,
        call: CallHeader,
        deadline: float,
        room: Room,
    ) -> None:
        self.phases, self.workshop, self.rank = phases, workshop, transport.rank
        self.link = Channel(scheme, deadline, transport, call)
        self.inbox, self.outbox = Inbox(self.link, workshop, room), Outbox(self.link, workshop)
        self.held: dict[int, list[HeldSegment]] = {}
        self.stats = {kind.value: PhaseStats() for kind in VALUE_KINDS}

    def counts_in(self, own: list[HeldSegment]) -> list[int]:
        """The occupied units of each part that this rank contributed."""
        return [segment.count for segment in own]

    def pack(self, contribution: Contribution, divisor: int) -> list[HeldSegment]:
        """This rank's own segments, one a part, filled up if the first push is dense or in blocks."""
        format = self.phases[0].format
        own = self.workshop.pack(contribution, divisor, self.rank, format)
        return [self.workshop.filled(segment, format) for segment in own] if format in FILLING else own

    def run(self, own: list[HeldSegment]) -> Summed[HeldSegment]:
        """From this rank's own segments to the complete ones, one a part."""
        self.held = {segment.part: [segment] for segment in own}
        for phase in self.phases:
            started = time.perf_counter()
            name = phase.kind.value
            stats, self.inbox.one_shot = self.stats[name], phase.one_shot
            for number, step in enumerate(phase.steps, 1):
                with within(name, number):
                    arrived = self._step(step, phase.format, stats)
                if phase.kind is PhaseKind.PULL:
                    self._replace(arrived)
                elif arrived:
                    with within("merge"):
                        self._join(phase, step, arrived)
            if not phase.is_last:
                with within("merge"):
                    self._end(phase)
            stats.seconds += time.perf_counter() - started
        return Summed([self.held[part][0] for part in sorted(self.held)], self.workshop)

    def _step(self, step: RankStep, format: Format, stats: PhaseStats) -> list[HeldSegment]:
        """Be ready for everything, send everything, then take what comes; all first packets before any rest."""
        posted = self.inbox.post(step)
        self.outbox.send(step, [self._load(message) for message in step.sends], format, stats)
        long = self.inbox.await_first(step, posted)
        self.outbox.send_rests(step)
        found = self.inbox.receive(step, long, stats)
        self.outbox.finish(step)
        return found

    def _load(self, message: Message) -> list[HeldSegment]:
        """What is held of a message's parts; of one contributor, where a piece names one."""
        first = message.pieces[0]
        if len(message.pieces) == 1 and first.origin < 0:
            return self.held[first.part]
        return [s for p in message.pieces for s in self.held[p.part] if p.origin < 0 or s.origin == p.origin]

    def _join(self, phase: RankPhase, step: RankStep, arrived: list[HeldSegment]) -> None:
        """The push: merge at once, in the order of the holders; or collect, under one-shot."""
        by_part: dict[int, list[HeldSegment]] = {}
        for segment in arrived:
            by_part.setdefault(segment.part, []).append(segment)
        for part, segments in by_part.items():
            segments = sorted([*self.held[part], *segments], key=_origin)
            if not phase.one_shot:
                segments = [self.workshop.merge(segments, self.rank, phase.format_after(part, step.number))]
            self.held[part] = segments

    def _end(self, phase: RankPhase) -> None:
        """Merge what was collected, and take the form of the next phase; but not what is needed no more."""
        for part, segments in self.held.items():
            if part not in phase.needless:
                if phase.origins is not None:
                    _ensure_origins(phase.origins, part, segments)
                merged = self.workshop.merge(segments, self.rank, phase.next_format)
                self.held[part] = [self._reshaped(merged, phase)]

    def _reshaped(self, segment: HeldSegment, phase: RankPhase) -> HeldSegment:
        """``segment`` without zeros where ``phase`` alone was dense, and filled up as the next one says."""
        if phase.format is Format.DENSE and phase.next_format is not Format.DENSE:
            segment = self.workshop.sparsify(segment, phase.next_format)
        return self.workshop.filled(segment, phase.next_format) if phase.next_format in FILLING else segment

    def _replace(self, arrived: list[HeldSegment]) -> None:
        """The pull: what arrives is complete."""
        for segment in arrived:
            self.held[segment.part] = [segment]


def _ensure_origins(wanted: tuple[int, ...], part: int, segments: list[HeldSegment]) -> None:
    """Under one-shot headers say whose a segment is: the order of the sum, and so its last bits, depend on that."""
    origins = tuple([segment.origin for segment in segments])
    if origins != wanted:
        message = f"part {part} was collected from ranks {', '.join(map(str, origins))}, and not once from each"
        raise SynchronisationError(Diagnostic("corrupt-message", message))
