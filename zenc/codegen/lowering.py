"""A program played with numbers of segments instead of segments: what it would do is written down."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from zenc.codegen.statements import (
    FULL,
    Fill,
    Kind,
    Merge,
    Parcel,
    Segment,
    Sequence,
    Sparsify,
    Statement,
    Stretch,
    Transfer,
)
from zenc.plan.ir import Phase, Plan
from zenc.plan.rank_schedule import Message, RankStep
from zenc.scheme.model import Format
from zenc.verify.incoming import Pieces
from zenc.wire.formats import FILLING


@dataclass(slots=True)
class Lowering:
    """Plays the program of one rank with numbers of segments.

    ``held[part]`` are (origin, segment) in the order of the origins.
    """

    rank: int
    size: int
    parts: int
    pieces: Pieces
    segments: list[Segment] = field(default_factory=list)
    held: list[list[tuple[int, int]]] = field(default_factory=list)
    own: tuple[int, ...] = ()
    phases: list[Stretch] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    met: set[tuple[str, int]] = field(default_factory=set)
    kind: Kind = "push"
    format: Format = Format.AUTO
    spread: int = 1
    one_shot: bool = False

    def made(self, part: int, ranks: int, block: int = 1, spread: int = 1) -> int:
        """The number of a new segment."""
        self.segments.append(Segment(part, ranks, block, spread))
        return len(self.segments) - 1

    def begin(self, plan: Plan, phase: Phase, is_push: bool) -> None:
        """Open a phase; the first one with this rank's own segments, filled up as it says."""
        self._close()
        self.kind = "push" if is_push else "pull"
        self.format, self.one_shot = phase.format, plan.one_shot(phase)
        self.spread = max(self.spread, _whole(phase.format))
        if not self.own:
            raw = [self.made(part, 1) for part in range(self.parts)]
            self.own = tuple(self._filled(segment, phase.format) for segment in raw)
            self.held = [[(self.rank, segment)] for segment in self.own]

    def step(self, step: RankStep) -> None:
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

    def _expected(self, step: RankStep, message: Message) -> list[tuple[int, int]]:
        """The (segment, origin) that a message brings: those of a part in the order of their origins."""
        complete = ((message.peer, self.size),)
        found = []
        for part in sorted({piece.part for piece in message.pieces}):
            pieces = self.pieces.get((step.number, message.peer, part), complete)
            whole = _whole(self.format)
            found += [(self.made(part, ranks, whole, self.spread), origin) for origin, ranks in pieces]
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
        merged = [self.segments[segment] for segment in segments]
        blocks = [segment.block for segment in merged]
        block = FULL if FULL in blocks else min(blocks)
        ranks = sum(segment.ranks for segment in merged)
        result = self.made(merged[0].part, ranks, block, max(segment.spread for segment in merged))
        self.statements.append(Merge(result, segments))
        return result

    def end(self, following: Format) -> None:
        """Merge what was collected, and take the form of the next phase."""
        segments = [self._merged(pieces) for pieces in self.held]
        if self.format is Format.DENSE and following is not Format.DENSE:
            segments = [self._sparse(segment) for segment in segments]
            self.spread = 1
        self.held = [[(self.rank, self._filled(segment, following))] for segment in segments]

    def _sparse(self, segment: int) -> int:
        result = self.made(self.segments[segment].part, self.segments[segment].ranks)
        self.statements.append(Sparsify(result, segment))
        return result

    def _filled(self, segment: int, format: Format) -> int:
        if format not in FILLING:
            return segment
        filled = self.segments[segment]
        if filled.block >= _whole(format):
            return segment
        result = self.made(filled.part, filled.ranks, _whole(format), max(filled.spread, _whole(format)))
        self.statements.append(Fill(result, segment, format))
        return result

    def _close(self) -> None:
        if self.own:
            self.phases.append(Stretch(self.kind, self.format, tuple(self.statements)))
            self.statements = []

    def done(self) -> Sequence:
        """All that was played; every part is held complete, in one piece."""
        self._close()
        complete = tuple(segment for ((_, segment),) in self.held)
        return Sequence(self.rank, self.size, self.parts, tuple(self.segments), self.own, tuple(self.phases), complete)


def _whole(format: Format) -> int:
    """The slots of the blocks that ``format`` sends all of or nothing."""
    return FULL if format is Format.DENSE else max(format.block, 1)
