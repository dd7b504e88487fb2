"""What one rank does in a call, as straight-line steps over numbered segments, in which nothing but counts is unknown.

    Sequence = rank size parts  segments: Segment*  own: number*  phases: Stretch+  complete: number*
    Segment  = part asked?                                # asked: what it is sent in first; None: it is not sent

The own segments of all parts come first, then those that the statements make, in their order. The statements are what
``zenc.runtime.exchange`` does while it plays a program, found before the call; what no other statement, no message and
no result needs is left out. Segments of a dense phase need no counts: they have all slots. So the first message from
one rank to another is announced, and after it all that are counted.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from zenc.codegen.statements import (
    Fill,
    Kind,
    Merge,
    Parcel,
    Sparsify,
    Statement,
    Stretch,
    Transfer,
    needed_only,
    renumbered,
    with_numbers,
)
from zenc.errors import Diagnostic, InternalError
from zenc.plan.cargo import Origins, verify_with_origins
from zenc.plan.formats import FILLING
from zenc.plan.model import Phase, Plan
from zenc.plan.program import Message, Step, program
from zenc.scheme.model import Format

FULL = 1 << 20
"""Longer than any block: all slots are occupied."""


@dataclass(frozen=True, slots=True)
class Segment:
    part: int
    asked: Format | None = None


@dataclass(frozen=True, slots=True)
class Sequence:
    """``own[part]`` is what this rank contributes, filled up if the first phase says so, ``complete[part]`` the sum.

    Segments 0 to ``parts - 1`` are its gradient as it is.
    """

    rank: int
    size: int
    parts: int
    segments: tuple[Segment, ...]
    own: tuple[int, ...]
    phases: tuple[Stretch, ...]
    complete: tuple[int, ...]


def sequence(plan: Plan, size: int, rank: int) -> Sequence:
    """What ``rank`` of ``size`` does under ``plan``, which is proved; raises VerificationError."""
    if plan.announce is not None:
        raise InternalError(Diagnostic("internal", "a plan by holders has no cut that is known before a call"))
    rounds, _, origins = verify_with_origins(plan, size, rank)
    steps = program(rounds, rank)
    lowering = _Lowering(rank, rounds.parts, origins)
    for number, (phase, of_phase) in enumerate(zip(_phases(plan), (*steps.pushes, *steps.pulls), strict=True)):
        is_push = number < len(plan.pushes)
        following = _phases(plan)[number + 1 :]
        lowering.begin(plan, phase, is_push)
        for step in of_phase:
            lowering.step(step)
        if following:
            lowering.end(following[0].format)
    return _without_the_needless(lowering.done(size))


def _phases(plan: Plan) -> tuple[Phase, ...]:
    return (*plan.pushes, *plan.pulls)


@dataclass(slots=True)
class _Lowering:
    """Plays the program of one rank with numbers of segments.

    ``held[part]`` are (origin, segment) in the order of the origins. Of blocks of ``whole[segment]`` slots a segment
    surely has all or none.
    """

    rank: int
    parts: int
    origins: Origins
    segments: list[Segment] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    held: list[list[tuple[int, int]]] = field(default_factory=list)
    own: tuple[int, ...] = ()
    phases: list[Stretch] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    met: set[tuple[str, int]] = field(default_factory=set)
    kind: Kind = "push"
    format: Format = Format.AUTO
    one_shot: bool = False

    def made(self, part: int, whole: int) -> int:
        """The number of a new segment."""
        self.segments.append(Segment(part))
        self.whole.append(whole)
        return len(self.segments) - 1

    def begin(self, plan: Plan, phase: Phase, is_push: bool) -> None:
        """Open a phase; the first one with this rank's own segments, filled up as it says."""
        self._close()
        self.kind = "push" if is_push else "pull"
        self.format, self.one_shot = phase.format, plan.one_shot(phase)
        if not self.own:
            raw = [self.made(part, 0) for part in range(self.parts)]
            self.own = tuple(self._filled(segment, phase.format) for segment in raw)
            self.held = [[(self.rank, segment)] for segment in self.own]

    def step(self, step: Step) -> None:
        """Exchange the messages of a step, and join what arrives to what is held, or replace that."""
        sends = tuple(self._parcel("to", message, self._load(message)) for message in step.sends)
        arrived: dict[int, list[tuple[int, int]]] = defaultdict(list)
        receives = []
        for message in step.receives:
            expected = self._expected(step, message)
            for segment, origin in expected:
                arrived[self.segments[segment].part].append((origin, segment))
            receives.append(self._parcel("from", message, [segment for segment, _ in expected]))
        self.statements.append(Transfer(step.number, sends, tuple(receives)))
        for part, pieces in arrived.items():
            self._take(part, pieces)

    def _load(self, message: Message) -> list[int]:
        """What is held of a message's parts; of one origin, where a piece names one."""
        return [
            segment
            for piece in message.pieces
            for origin, segment in self.held[piece.part]
            if piece.origin in (-1, origin)
        ]

    def _expected(self, step: Step, message: Message) -> list[tuple[int, int]]:
        """The (segment, origin) that a message brings: those of a part in the order of their origins."""
        whole = FULL if self.format is Format.DENSE else self.format.block
        found = []
        for part in sorted({piece.part for piece in message.pieces}):
            apart = self.origins.get((step.number, message.peer, part), (message.peer,))
            found += [(self.made(part, whole), origin) for origin in apart]
        return found

    def _parcel(self, way: str, message: Message, segments: list[int]) -> Parcel:
        counted = self.format is not Format.DENSE
        announced = counted or (way, message.peer) not in self.met
        self.met.add((way, message.peer))
        return Parcel(message.peer, tuple(segments), announced, counted)

    def _take(self, part: int, pieces: list[tuple[int, int]]) -> None:
        if self.kind == "pull":
            self.held[part] = pieces
            return
        joined = sorted([*self.held[part], *pieces])
        self.held[part] = joined if self.one_shot else [(self.rank, self._merged(joined))]

    def _merged(self, pieces: list[tuple[int, int]]) -> int:
        segments = tuple(segment for _, segment in pieces)
        if len(segments) == 1:
            return segments[0]
        of_all = [self.whole[segment] for segment in segments]
        whole = FULL if FULL in of_all else min(of_all)
        result = self.made(self.segments[segments[0]].part, whole)
        self.statements.append(Merge(result, segments))
        return result

    def end(self, following: Format) -> None:
        """Merge what was collected, and take the form of the next phase."""
        segments = [self._merged(pieces) for pieces in self.held]
        if self.format is Format.DENSE and following is not Format.DENSE:
            segments = [self._sparse(segment) for segment in segments]
        self.held = [[(self.rank, self._filled(segment, following))] for segment in segments]

    def _sparse(self, segment: int) -> int:
        result = self.made(self.segments[segment].part, 0)
        self.statements.append(Sparsify(result, segment))
        return result

    def _filled(self, segment: int, format: Format) -> int:
        if format not in FILLING:
            return segment
        whole = FULL if format is Format.DENSE else format.block
        if self.whole[segment] >= whole:
            return segment
        result = self.made(self.segments[segment].part, whole)
        self.statements.append(Fill(result, segment, format))
        return result

    def _close(self) -> None:
        if self.own:
            self.phases.append(Stretch(self.kind, self.format, tuple(self.statements)))
            self.statements = []

    def done(self, size: int) -> Sequence:
        """All that was played; every part is held complete, in one piece."""
        self._close()
        complete = tuple(segment for ((_, segment),) in self.held)
        return Sequence(self.rank, size, self.parts, tuple(self.segments), self.own, tuple(self.phases), complete)


def _without_the_needless(found: Sequence) -> Sequence:
    """Only what is sent or needed for the result, numbered anew, and with the formats that segments are sent in."""
    needed = {*range(found.parts), *found.own, *found.complete}
    phases = needed_only(found.phases, needed)
    asked: dict[int, Format] = {}
    for phase in phases:
        for statement in phase.statements:
            if isinstance(statement, Transfer):
                for segment in (segment for parcel in statement.sends for segment in parcel.segments):
                    asked.setdefault(segment, phase.format)
    kept_numbers = sorted(needed)
    numbers = {old: new for new, old in enumerate(kept_numbers)}
    return replace(
        found,
        segments=tuple(Segment(found.segments[old].part, asked.get(old)) for old in kept_numbers),
        own=renumbered(found.own, numbers),
        phases=with_numbers(phases, numbers),
        complete=renumbered(found.complete, numbers),
    )
