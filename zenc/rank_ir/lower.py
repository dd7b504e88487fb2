"""Lowering of a plan to rank programs: the schedule of one rank, played with numbers of segments.

What it would do is written down. The meaning of phases and moves is that of ``zenc.plan.ir``: pieces of a part are
added in the order of the ranks that held them, at once or, under one-shot aggregation, when the phase ends.

In a push with a code a segment is encoded where it is first sent, and the encoded one takes its place, here as well.
In a pull with one all that hold a part complete when it begins encode it, where any of them sends it: so all ranks
have the values that the bytes mean. What arrived encoded is forwarded as it is; a sum has no code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from zenc.plan.expressions import Ints, Mask
from zenc.plan.ir import Phase, PhaseKind, Plan
from zenc.plan.unroll import Rounds
from zenc.rank_ir.exchanges import Piece, RankSchedule, RankStep, Schedules, schedules
from zenc.rank_ir.ir import (
    FULL,
    WHOLE,
    Agree,
    AnyStatement,
    Carries,
    Decode,
    Encode,
    Exchange,
    Expand,
    Fill,
    Merge,
    Message,
    Pack,
    RankPhase,
    RankProgram,
    SegmentSpec,
    Select,
    Sparsify,
    Split,
    Statement,
    made_by,
    used_by,
)
from zenc.scheme.compression import Code
from zenc.scheme.model import Format
from zenc.verify.losses import BEGIN, SELECTED, forwards_sealed
from zenc.verify.provenance import by_part
from zenc.wire.formats import FILLING

AnyStatementT = TypeVar("AnyStatementT", bound=AnyStatement)
_Changes = Merge | Fill | Sparsify | Select | Encode | Decode


def with_uses(program: RankProgram) -> RankProgram:
    """``program`` without what neither a message nor the result needs, and with all that follows from uses.

    That is ``frees`` of every statement, and of every segment ``sent_in`` and ``final``.
    """
    used, own = set[int](), frozenset(program.own)
    expand = _freeing(program.expand, used)
    phases = tuple(reversed([_kept(phase, used, own) for phase in reversed(program.phases)]))
    pack = _freeing(program.pack, used)
    return replace(program, segments=_specs(program), pack=pack, phases=phases, expand=expand)


def _kept(phase: RankPhase, used: set[int], own: frozenset[int]) -> RankPhase:
    """``phase`` without what is not needed; ``used`` are segments that later statements use, and grows by its own."""
    found: list[Statement] = []
    for statement in reversed(phase.statements):
        makes = statement.result if isinstance(statement, _Changes) else None
        if makes is None or makes in used or makes in own:
            found.append(_freeing(statement, used))
    return replace(phase, statements=tuple(reversed(found)))


def _freeing(statement: AnyStatementT, used: set[int]) -> AnyStatementT:
    """``statement`` with what it frees, where ``used`` are segments of later ones, to which its own are added."""
    uses = used_by(statement)
    frees = tuple([segment for segment in dict.fromkeys((*uses, *made_by(statement))) if segment not in used])
    used.update(uses)
    return replace(statement, frees=frees) if frees else statement


def _specs(program: RankProgram) -> tuple[SegmentSpec, ...]:
    sent: dict[int, Format] = {}
    for phase in program.phases:
        for exchange in phase.exchanges:
            for segment in used_by(exchange):
                sent.setdefault(segment, phase.format)
    final = set(program.expand.segments)
    told = enumerate(program.segments)
    return tuple([replace(s, sent_in=sent.get(n), final=n in final) if n in sent or n in final else s for n, s in told])


@dataclass(slots=True)
class LastUses:
    """The last uses of what all ranks hold of all parts: a place is rank * parts + part.

    ``freed[phase, step]`` are the places of which a step uses or brings something that none after it needs, and
    ``needed[phase]`` [places] those of which something is needed when the phase ends; steps are numbered from 1.
    """

    freed: dict[tuple[str, int], Ints] = field(default_factory=dict)
    needed: dict[str, Mask] = field(default_factory=dict)


def last_uses(rounds: Rounds) -> LastUses:
    """The last uses of segments in ``rounds``, but for announced ones: from the last step to the first."""
    found, needed = LastUses(), np.ones(rounds.size * rounds.parts, dtype=np.bool_)
    for phase, played in reversed(rounds.phases):
        if phase.kind is PhaseKind.ANNOUNCE:
            continue
        found.needed[phase.name] = needed.copy()
        for number, round_ in reversed(list(enumerate(played, 1))):
            rows = by_part(round_)
            src, dst = (rank * rounds.parts + rows.part for rank in (rows.src, rows.dst))
            touched = np.concatenate((src, dst))
            found.freed[phase.name, number] = np.unique(touched[~needed[touched]])
            if phase.kind is PhaseKind.PULL:
                needed[dst] = False
            needed[src] = True
    return found


def lower(plan: Plan, size: int, rank: int) -> RankProgram:
    """The program of ``rank`` among ``size`` under ``plan``, which is proved; raises VerificationError."""
    return lower_all(plan, size, (rank,))[0]


def lower_all(plan: Plan, size: int, ranks: Iterable[int] | None = None) -> tuple[RankProgram, ...]:
    """The programs of ``ranks`` of ``size``, or of all of them, by one proof; raises VerificationError."""
    chosen = tuple(range(size) if ranks is None else ranks)
    of = schedules(plan, size, chosen)
    return tuple([_lowered(plan, rank, size, of) for rank in chosen])


def _lowered(plan: Plan, rank: int, size: int, of: Schedules) -> RankProgram:
    schedule, keeps = of.of_rank[rank], frozenset() if of.keepers is None else of.keepers.of(rank)
    lowering = _Lowering(plan, rank, size, plan.parts(size), keeps)
    needless = _needless(plan, schedule)
    if not plan.announces:
        lowering.pack(plan.phases[0])
    for phase, following in zip(plan.phases, (*plan.phases[1:], None), strict=True):
        if phase.kind is PhaseKind.ANNOUNCE:
            lowering.announce(phase, schedule)
            continue
        if phase.kind is PhaseKind.PULL and phase.code is not None:
            lowering.encode_sums(phase, of.encoded[phase.name])
        lowering.play(phase, schedule[phase.name])
        if following is not None:
            lowering.reshape(needless[phase.name], following)
        lowering.close(phase)
    return with_uses(lowering.done())


def _needless(plan: Plan, schedule: RankSchedule) -> dict[str, frozenset[int]]:
    """Of each phase the parts that a later pull brings before they are moved again: their merge is not needed."""
    found, after = dict[str, frozenset[int]](), frozenset[int]()
    for phase in reversed(plan.phases):
        found[phase.name] = after
        sent, received = (
            {piece.part for step in schedule[phase.name] for pieces in getattr(step, way).values() for piece in pieces}
            for way in ("sends", "receives")
        )
        after = after | received if phase.kind is PhaseKind.PULL else after - (sent | received)
    return found


@dataclass(slots=True)
class _Lowering:
    """The state of one rank: ``held[part]`` are segments by their origin."""

    plan: Plan
    rank: int
    size: int
    parts: int
    keeps: frozenset[tuple[int, int, int]]
    segments: list[SegmentSpec] = field(default_factory=list)
    held: list[dict[int, int]] = field(default_factory=list)
    packed: Pack = field(default_factory=lambda: Pack(()))
    own: tuple[int, ...] = ()
    sets: tuple[int, ...] = ()
    phases: list[RankPhase] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    kind: PhaseKind = PhaseKind.PUSH
    format: Format = Format.AUTO
    code: Code | None = None
    place: int = 0
    one_shot: bool = False
    spread: int = 1

    def pack(self, first: Phase) -> None:
        """This rank's own segments, filled up as the ``first`` phase says."""
        self.packed = Pack(tuple(self._made(part, self.rank, (self.rank,)) for part in range(self.parts)))
        self.own = tuple(self._filled(segment, first.format) for segment in self.packed.results)
        self._hold(self.own)

    def announce(self, phase: Phase, schedule: RankSchedule) -> None:
        """A push of index sets, of one part; then the ranks agree, and this one cuts what it has."""
        own = self._made(WHOLE, self.rank, (self.rank,))
        self.packed = Pack((own,))
        self._hold([own])
        self.play(phase, schedule[phase.name])
        self.sets = tuple(segment for _, segment in sorted(self.held[0].items()))
        self.own = tuple(self._made(part, self.rank, (self.rank,)) for part in range(self.parts))
        later = (step for name, steps in schedule.items() if name != phase.name for step in steps)
        peers = sorted({peer for step in later for peer in (*step.sends, *step.receives)})
        self.statements += [Agree(self.sets, tuple(peers)), Split(self.own, own)]
        self._hold(self.own)
        self.close(phase)

    def play(self, phase: Phase, steps: Iterable[RankStep]) -> None:
        """The steps of a phase."""
        self.place = self.plan.phases.index(phase)
        self.kind, self.format, self.code, self.one_shot = phase.kind, phase.format, phase.code, phase.one_shot
        self.spread = max(self.spread, self._block)
        for step in steps:
            self._step(step)

    def encode_sums(self, phase: Phase, parts: Iterable[int]) -> None:
        """Encode what this rank holds complete of ``parts``, which are sent in ``phase``, the next one."""
        self.code, self.place = phase.code, self.plan.phases.index(phase)
        for part in sorted(parts):
            if all(len(self.segments[segment].ranks) == self.size for segment in self.held[part].values()):
                self._encode(part, self.rank, BEGIN)

    def reshape(self, needless: frozenset[int], following: Phase) -> None:
        """Merge what was collected, but for parts that are ``needless``, and take the form of the next phase.

        Statements of one kind come in a row: a target may do them at once.
        """
        sparse = self.format is Format.DENSE and following.format is not Format.DENSE and not self._bare
        parts = [part for part in range(len(self.held)) if part not in needless]
        segments = [self._merged(self.held[part]) for part in parts]
        if sparse:
            segments, self.spread = [self._sparse(segment) for segment in segments], 1
        if following.select:
            segments = [self._selected(segment, following) for segment in segments]
        segments = [self._filled(segment, following.format) for segment in segments]
        if not forwards_sealed(self.plan.phases[self.place], following):
            segments = [self._decoded(segment) for segment in segments]
        for part, segment in zip(parts, segments, strict=True):
            self.held[part] = {self.rank: segment}

    def close(self, phase: Phase) -> None:
        """What was written down since the last one is a phase."""
        announcing, depth = phase.kind is PhaseKind.ANNOUNCE, phase.tier.depth
        carries = Carries.SETS if announcing else Carries.ROWS if self._bare else Carries.SEGMENTS
        statements = tuple(self.statements)
        head = phase.kind, phase.name, depth, phase.format, phase.one_shot
        self.phases.append(RankPhase(*head, carries, statements, phase.code))
        self.statements = []

    def done(self) -> RankProgram:
        """All that was played; every part is held complete, in one piece."""
        expand = Expand(tuple(segment for (segment,) in (of.values() for of in self.held)), self.sets)
        segments, phases = tuple(self.segments), tuple(self.phases)
        select = self.plan.of(PhaseKind.PUSH)[0].select
        return RankProgram(self.rank, self.size, self.parts, segments, self.own, self.packed, phases, expand, select)

    @property
    def _bare(self) -> bool:
        """Whether segments have no index of their own: they are not filled up either."""
        return self.plan.announces

    @property
    def _block(self) -> int:
        """The slots of the blocks that this phase sends all of or nothing."""
        return 1 if self._bare else _whole(self.format)

    def _hold(self, own: Iterable[int]) -> None:
        self.held = [{self.rank: segment} for segment in own]

    def _step(self, step: RankStep) -> None:
        """Exchange the messages of a step, and join what arrives to what is held, or replace that."""
        for piece in chain.from_iterable(step.sends.values()):
            self._encode(piece.part, piece.origin, step.number)
        sends = tuple(
            [Message(peer, tuple([self.held[p.part][p.origin] for p in of])) for peer, of in step.sends.items()]
        )
        arrived: dict[int, dict[int, int]] = defaultdict(dict)
        receives = tuple([Message(peer, self._expected(of, arrived)) for peer, of in step.receives.items()])
        self.statements.append(Exchange(step.number, sends, receives))
        for part, pieces in arrived.items():
            self._take(part, pieces)

    def _expected(self, pieces: Iterable[Piece], arrived: dict[int, dict[int, int]]) -> tuple[int, ...]:
        """What a message brings; each piece of it is among what has ``arrived`` of its part."""
        found = list[int]()
        for part, origin, ranks in pieces:
            what = WHOLE if self.kind is PhaseKind.ANNOUNCE else part
            found.append(self._made(what, origin, ranks, self._block, self.spread, self.code))
            arrived[part][origin] = found[-1]
        return tuple(found)

    def _take(self, part: int, pieces: dict[int, int]) -> None:
        if self.kind is PhaseKind.PULL:
            (self.held[part],) = [{self.rank: segment} for segment in pieces.values()]
        elif self.one_shot:
            self.held[part] |= pieces
        else:
            self.held[part] = {self.rank: self._merged(self.held[part] | pieces)}

    def _made(
        self, part: int, origin: int, ranks: tuple[int, ...], block: int = 1, spread: int = 1, code: Code | None = None
    ) -> int:
        """The number of a new segment."""
        self.segments.append(SegmentSpec(part, origin, ranks, block, spread, code=code))
        return len(self.segments) - 1

    def _encode(self, part: int, origin: int, step: int) -> None:
        """Hold the piece of ``origin`` encoded, unless it is already, or the phase has no code."""
        segment = self.held[part][origin]
        if self.code is not None and self.segments[segment].code is None:
            self.held[part][origin] = self._changed(segment, code=self.code)
            keeps = (self.place, step, part) in self.keeps
            self.statements.append(Encode(self.held[part][origin], segment, self.code, keeps))

    def _changed(self, segment: int, **changes: Any) -> int:
        """The number of a new segment of the same contributions, which this rank makes."""
        self.segments.append(replace(self.segments[segment], **changes))
        return len(self.segments) - 1

    def _selected(self, segment: int, following: Phase) -> int:
        result = self._changed(segment, origin=self.rank, block=1, code=None)
        keeps = (self.place + 1, SELECTED, self.segments[segment].part) in self.keeps
        self.statements.append(Select(result, segment, following.select, keeps))
        return result

    def _decoded(self, segment: int) -> int:
        if self.segments[segment].code is None:
            return segment
        result = self._changed(segment, origin=self.rank, code=None)
        self.statements.append(Decode(result, segment))
        return result

    def _merged(self, pieces: Mapping[int, int]) -> int:
        """The sum of segments in the order of their origins; of blocks it has all that each of them has."""
        segments = tuple([segment for _, segment in sorted(pieces.items())])
        if len(segments) == 1:
            return segments[0]
        merged = [self.segments[segment] for segment in segments]
        blocks = [spec.block for spec in merged]
        ranks = tuple(sorted(chain.from_iterable(spec.ranks for spec in merged)))
        block = FULL if FULL in blocks else min(blocks)
        result = self._made(merged[0].part, self.rank, ranks, block, max(spec.spread for spec in merged))
        self.statements.append(Merge(result, segments))
        return result

    def _sparse(self, segment: int) -> int:
        spec = self.segments[segment]
        result = self._made(spec.part, self.rank, spec.ranks)
        self.statements.append(Sparsify(result, segment))
        return result

    def _filled(self, segment: int, format: Format) -> int:
        spec, block = self.segments[segment], _whole(format)
        if self._bare or format not in FILLING or spec.block >= block:
            return segment
        result = self._made(spec.part, self.rank, spec.ranks, block, max(spec.spread, block))
        self.statements.append(Fill(result, segment, format))
        return result


def _whole(format: Format) -> int:
    """The slots of the blocks that ``format`` sends all of or nothing."""
    return FULL if format is Format.DENSE else max(format.block, 1)
