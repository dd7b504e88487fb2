"""One call, played by one rank: the program's steps over a transport, with the target's kernels in between.

The semantics are those of ``zenc.plan.model``; what the verifier plays with sets is played here with segments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from zenc.errors import Diagnostic, SynchronisationError
from zenc.plan.formats import FILLING
from zenc.plan.levels import levels_of
from zenc.plan.model import Plan
from zenc.plan.program import Message, Program, Step
from zenc.runtime.inbox import Inbox, Room
from zenc.runtime.layout import Contribution
from zenc.runtime.link import Link
from zenc.runtime.outbox import Outbox
from zenc.runtime.segments import Segment, Workshop
from zenc.runtime.stats import PhaseStats
from zenc.runtime.summed import Summed
from zenc.runtime.transport import Transport
from zenc.runtime.wire import Envelope
from zenc.scheme.model import Format


class Exchange:
    """The state of one call on one rank: for every part the segments that it holds."""

    def __init__(
        self,
        plan: Plan,
        program: Program,
        transport: Transport,
        workshop: Workshop,
        call: Envelope,
        deadline: float,
        room: Room,
    ) -> None:
        self.plan, self.program, self.workshop, self.rank = plan, program, workshop, transport.rank
        self.size = transport.size
        self.phases = (*plan.pushes, *plan.pulls)
        self.one_shot, self.format, self.next_format = False, Format.AUTO, Format.AUTO
        self.last: Mapping[int, int] = {}
        link = Link(plan.scheme, deadline, transport, call)
        self.inbox, self.outbox = Inbox(link, workshop, room), Outbox(link, workshop)
        self.held: dict[int, list[Segment]] = {}
        self.push_stats, self.pull_stats = PhaseStats(), PhaseStats()

    @property
    def stats(self) -> dict[str, PhaseStats]:
        """By phase, in order."""
        return {"push": self.push_stats, "pull": self.pull_stats}

    def counts_in(self, own: list[Segment]) -> list[int]:
        """The occupied units of each part that this rank contributed."""
        return [segment.count for segment in own]

    def pack(self, contribution: Contribution, divisor: int) -> list[Segment]:
        """This rank's own segments, one a part, filled up if the first push is dense or in blocks."""
        format = self.phases[0].format
        own = self.workshop.pack(contribution, divisor, self.rank, format)
        return [self.workshop.filled(segment, format) for segment in own] if format in FILLING else own

    def run(self, own: list[Segment]) -> Summed[Segment]:
        """From this rank's own segments to the complete ones, one a part."""
        self.held = {segment.part: [segment] for segment in own}
        for number, steps in enumerate((*self.program.pushes, *self.program.pulls)):
            self._begin(number)
            is_push = number < len(self.program.pushes)
            stats = self.push_stats if is_push else self.pull_stats
            self._phase(steps, stats, self._join if is_push else self._replace)
            if number + 1 < len(self.phases):
                self._end(number, stats)
        return Summed([self.held[part][0] for part in sorted(self.held)], self.workshop)

    def _begin(self, number: int) -> None:
        """Take the settings of a phase."""
        phase, following = self.phases[number], self.phases[number + 1 :]
        self.one_shot = self.inbox.one_shot = self.plan.one_shot(phase)
        self.format = phase.format
        self.next_format = following[0].format if following else phase.format
        self.last = self.program.last[number] if number < len(self.program.last) else {}

    def _phase(self, steps: Iterable[Step], stats: PhaseStats, take: Callable[[Step, list[Segment]], None]) -> None:
        started = time.perf_counter()
        for step in steps:
            take(step, self._step(step, self.format, stats))
        stats.seconds += time.perf_counter() - started

    def _step(self, step: Step, format: Format, stats: PhaseStats) -> list[Segment]:
        """Be ready for everything, send everything, then take what comes."""
        posted = self.inbox.post(step)
        self.outbox.send(step, [(message.peer, self._load(message)) for message in step.sends], format, stats)
        found = self.inbox.receive(step, posted, stats)
        self.outbox.finish(step)
        return found

    def _load(self, message: Message) -> list[Segment]:
        """What is held of a message's parts; of one contributor, where a piece names one."""
        first = message.pieces[0]
        if len(message.pieces) == 1 and first.origin < 0:
            return self.held[first.part]
        return [s for p in message.pieces for s in self.held[p.part] if p.origin < 0 or s.origin == p.origin]

    def _join(self, step: Step, arrived: list[Segment]) -> None:
        """The push: merge at once, in the order of the holders; or collect, under one-shot."""
        by_part: dict[int, list[Segment]] = {}
        for segment in arrived:
            by_part.setdefault(segment.part, []).append(segment)
        for part, segments in by_part.items():
            segments = sorted([*self.held[part], *segments], key=lambda segment: segment.origin)
            self.held[part] = segments if self.one_shot else [self._merged(segments, step.number)]

    def _merged(self, segments: list[Segment], step: int) -> Segment:
        """The sum, laid out for the message that will carry it: the next phase's, if this one moves it no more."""
        last = self.last.get(segments[0].part, 0) <= step
        return self.workshop.merge(segments, self.rank, self.next_format if last else self.format)

    def _end(self, number: int, stats: PhaseStats) -> None:
        """Merge what was collected, and take the form of the next phase; but not what is needed no more."""
        started = time.perf_counter()
        needless = self.program.needless[number]
        collected = self.one_shot and number < len(self.program.pushes)
        origins = self._origins(number) if collected else None
        for part, segments in self.held.items():
            if part not in needless:
                if origins is not None:
                    _demand_origins(origins, part, segments)
                merged = self.workshop.merge(segments, self.rank, self.next_format)
                self.held[part] = [self._reshaped(merged)]
        stats.seconds += time.perf_counter() - started

    def _reshaped(self, segment: Segment) -> Segment:
        """``segment`` without zeros where this phase alone was dense, and filled up as the next one says."""
        if self.format is Format.DENSE and self.next_format is not Format.DENSE:
            segment = self.workshop.sparsify(segment, self.next_format)
        return self.workshop.filled(segment, self.next_format) if self.next_format in FILLING else segment

    def _origins(self, number: int) -> list[int]:
        """The ranks that a push collects from."""
        level = levels_of(self.plan, self.size)[self.phases[number].tier]
        return list(level.peers(self.rank))

    def _replace(self, _: Step, arrived: list[Segment]) -> None:
        """The pull: what arrives is complete."""
        for segment in arrived:
            self.held[segment.part] = [segment]


def _demand_origins(wanted: list[int], part: int, segments: list[Segment]) -> None:
    """Under one-shot headers say whose a segment is: the order of the sum, and so its last bits, hang on that."""
    origins = [segment.origin for segment in segments]
    if origins != wanted:
        message = f"part {part} was collected from ranks {', '.join(map(str, origins))}, and not once from each"
        raise SynchronisationError(Diagnostic("corrupt-message", message))
