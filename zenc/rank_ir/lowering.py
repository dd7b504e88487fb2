"""State of a rank while its program is written down: its pieces of each part, as numbers of segments.

In a push with a code a segment is encoded where it is first sent, or at the begin if it votes, and the encoded one
takes its place, here as well. In a pull with a code all ranks that hold a part complete when it begins encode it, where
any of them sends it: so all ranks have the values that the bytes mean. A segment received encoded is forwarded as it
is; a sum has no code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import Any

from zenc.plan.expressions import Mask
from zenc.plan.ir import VALUE_KINDS, Phase, PhaseKind, Plan
from zenc.rank_ir.exchanges import Piece, RankSchedule, RankStep
from zenc.rank_ir.ir import (
    FULL,
    WHOLE,
    Across,
    Agree,
    Carries,
    Choose,
    Deal,
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
)
from zenc.scheme.compression import Code, Selection
from zenc.scheme.model import Format
from zenc.verify.losses import BEGIN, SELECTED, forwards_sealed, votes
from zenc.wire.formats import FILLING


def needless_parts(plan: Plan, schedule: RankSchedule) -> dict[str, frozenset[int]]:
    """Return, for each phase, the parts that a later pull replaces before they move again: they need no merge."""
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
class Lowering:
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
    completes: bool = False
    whole: bool = False
    """True while index sets of all units move."""
    format: Format = Format.AUTO
    code: Code | None = None
    place: int = 0
    one_shot: bool = False
    spread: int = 1
    order: tuple[Phase, ...] = ()
    """The phases that take their form from each other; without any, those of the plan."""

    def pack(self, first: Phase) -> None:
        """Pack this rank's own segments, filled up as the ``first`` phase asks."""
        self.packed = Pack(tuple(self._made(part, self.rank, (self.rank,)) for part in range(self.parts)))
        self.own = tuple(self._filled(segment, first) for segment in self.packed.results)
        self._hold(self.own)

    def pack_sums(self, first: Phase, owned: Mask) -> None:
        """Pack this rank's sums of the parts that are ``owned`` [parts], filled up as the ``first`` phase asks."""
        everyone = tuple(range(self.size))
        self.packed = Pack(tuple(self._made(part, self.rank, everyone) for part in range(self.parts)))
        filled = (
            self._filled(segment, first) if mine else segment
            for segment, mine in zip(self.packed.results, owned.tolist(), strict=True)
        )
        self.own = tuple(filled)
        self._hold(self.own)

    def announce(self, phase: Phase, schedule: RankSchedule) -> None:
        """Push index sets, of one part or to a directory; then agree on the owners, and split this rank's values."""
        own = self._made(WHOLE, self.rank, (self.rank,))
        self.packed = Pack((own,))
        if self.plan.by_directory(self.size):
            phase, sets = self._by_directory(own, phase, schedule)
        else:
            self._hold([own])
            self.play(phase, schedule[phase.name])
            sets = self.sets = tuple(segment for _, segment in sorted(self.held[0].items()))
        self.own = tuple(self._made(part, self.rank, (self.rank,)) for part in range(self.parts))
        values = {phase.name for phase in self.plan.of(*VALUE_KINDS)}
        later = (step for name, steps in schedule.items() if name in values for step in steps)
        peers = sorted({peer for step in later for peer in (*step.sends, *step.receives)})
        self.statements += [Agree(sets, tuple(peers)), Split(self.own, own)]
        self._hold(self.own)
        self.close(phase)

    def _by_directory(self, own: int, announce: Phase, schedule: RankSchedule) -> tuple[Phase, tuple[int, ...]]:
        """Announce the set ``own``, name owners in whole parts, and hear all; return the last phase and its sets."""
        dealt = tuple(self._made(part, self.rank, (self.rank,)) for part in range(self.size))
        self.statements.append(Deal(dealt, own))
        self._hold(dealt)
        self.play(announce, schedule[announce.name])
        for part, of in enumerate(self.held):
            segments, self.held[part] = tuple(segment for _, segment in sorted(of.items())), {}
            if len({rank for segment in segments for rank in self.segments[segment].ranks}) == self.size:
                result = self._made(part, self.rank, tuple(range(self.size)))
                self.statements.append(Choose(result, segments))
                self.held[part] = {self.rank: result}
        self.close(announce)
        (directory,) = self.plan.of(PhaseKind.DIRECTORY)
        self.play(directory, schedule[directory.name])
        return directory, tuple(segment for of in self.held for segment in of.values())

    def sum_across(self, part: int, ranks: Iterable[int], program: RankProgram, following: Phase) -> None:
        """Sum ``part`` across ``ranks``, which hold some of it, by their ``program``."""
        (segment,) = self.held[part].values()
        result = self._made(part, self.rank, tuple(range(self.size)))
        self.statements.append(Across(result, segment, tuple(ranks), program))
        self.held[part] = {self.rank: self._filled(result, following)}

    def play(self, phase: Phase, steps: Iterable[RankStep]) -> None:
        """Play the steps of a phase."""
        self.place = self.plan.phases.index(phase)
        self.completes, self.format, self.code, self.one_shot = (
            phase.completes,
            phase.format,
            phase.code,
            phase.one_shot,
        )
        self.whole = phase.kind is PhaseKind.ANNOUNCE and not self.plan.by_directory(self.size)
        self.spread = max(self.spread, self._block)
        if votes(phase):
            for part in range(len(self.held)):
                self._encode(part, self.rank, BEGIN)
        for step in steps:
            self._step(step)

    def encode_sums(self, phase: Phase, parts: Iterable[int]) -> None:
        """Encode the complete ``parts`` of this rank that are sent in ``phase``, the next one."""
        self.code, self.place = phase.code, self.plan.phases.index(phase)
        for part in sorted(parts):
            if all(len(self.segments[segment].ranks) == self.size for segment in self.held[part].values()):
                self._encode(part, self.rank, BEGIN)

    def reshape(self, needless: frozenset[int], following: Phase) -> None:
        """Merge the collected pieces, but for parts that are ``needless``, and take the form of the next phase.

        Statements of one kind come in a row: a target may do them at once.
        """
        sparse = self.format is Format.DENSE and following.format is not Format.DENSE and not self._bare
        parts = [part for part in range(len(self.held)) if part not in needless]
        segments = [self._merged(self.held[part]) for part in parts]
        if sparse:
            marked = self._marks(self.plan.phases[self.place])
            segments, self.spread = [self._sparse(segment, marked) for segment in segments], 1
        if following.select:
            segments = [self._selected(segment, following.select, self.place + 1) for segment in segments]
        segments = [self._filled(segment, following) for segment in segments]
        if not forwards_sealed(self.plan.phases[self.place], following):
            segments = [self._decoded(segment) for segment in segments]
        for part, segment in zip(parts, segments, strict=True):
            self.held[part] = {self.rank: segment}

    def close(self, phase: Phase) -> None:
        """Close ``phase`` with the statements since the last one."""
        sets = {PhaseKind.ANNOUNCE: Carries.SETS, PhaseKind.DIRECTORY: Carries.OWNERS}
        values = Carries.ROWS if self.plan.is_bare(phase, self.size) else Carries.SEGMENTS
        carries, statements = sets.get(phase.kind, values), tuple(self.statements)
        head = phase.kind, phase.name, phase.tier.depth, phase.format, phase.one_shot
        self.phases.append(RankPhase(*head, carries, statements, phase.code))
        self.statements = []

    def done(self) -> RankProgram:
        """Return the program played; every part is held complete, in one piece, or is not in the result."""
        expand = Expand(tuple(segment for (segment,) in (of.values() for of in self.held if of)), self.sets)
        segments, phases = tuple(self.segments), tuple(self.phases)
        select = self.plan.of(PhaseKind.PUSH)[0].select
        own = self.own, self.packed, phases, expand, select, self.plan.transform
        return RankProgram(self.rank, self.size, self.parts, segments, *own)

    @property
    def _bare(self) -> bool:
        """Return whether segments have no index of their own; such segments are not filled up either."""
        return self.plan.announces

    @property
    def _block(self) -> int:
        """The slots of the blocks that this phase sends as a whole or not at all."""
        return 1 if self._bare else _whole(self.format)

    def _hold(self, own: Iterable[int]) -> None:
        self.held = [{self.rank: segment} for segment in own]

    def _step(self, step: RankStep) -> None:
        """Exchange the messages of a step, and join or replace the pieces held."""
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
        if self.plan.phases[self.place].merge:
            self._select_merged(arrived, step.number)

    def _expected(self, pieces: Iterable[Piece], arrived: dict[int, dict[int, int]]) -> tuple[int, ...]:
        """Return the segments that a message brings; add each to those that ``arrived`` of its part."""
        found = list[int]()
        for part, origin, ranks in pieces:
            what = WHOLE if self.whole else part
            found.append(self._made(what, origin, ranks, self._block, self.spread, self.code))
            arrived[part][origin] = found[-1]
        return tuple(found)

    def _take(self, part: int, pieces: dict[int, int]) -> None:
        if self.completes:
            (self.held[part],) = [{self.rank: segment} for segment in pieces.values()]
        elif self.one_shot:
            self.held[part] |= pieces
        else:
            self.held[part] = {self.rank: self._merged(self.held[part] | pieces)}

    def _select_merged(self, parts: Iterable[int], step: int) -> None:
        """Select from the sums just made of ``parts``, and fill up the rest: statements of one kind in a row."""
        phase, found = self.plan.phases[self.place], dict[int, int]()
        for part in parts:
            (segment,) = self.held[part].values()
            found[part] = self._selected(segment, phase.merge, self.place, SELECTED - step)
        for part, segment in found.items():
            self.held[part] = {self.rank: self._filled(segment, phase)}

    def _made(
        self, part: int, origin: int, ranks: tuple[int, ...], block: int = 1, spread: int = 1, code: Code | None = None
    ) -> int:
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
        self.segments.append(replace(self.segments[segment], **changes))
        return len(self.segments) - 1

    def _selected(self, segment: int, selection: tuple[Selection, ...], place: int, step: int = SELECTED) -> int:
        result = self._changed(segment, origin=self.rank, block=1, code=None)
        keeps = (place, step, self.segments[segment].part) in self.keeps
        self.statements.append(Select(result, segment, selection, keeps, step != SELECTED))
        return result

    def _decoded(self, segment: int) -> int:
        if self.segments[segment].code is None:
            return segment
        result = self._changed(segment, origin=self.rank, code=None)
        self.statements.append(Decode(result, segment))
        return result

    def _merged(self, pieces: Mapping[int, int]) -> int:
        """Merge segments in the order of their origins; return the sum, which has the blocks that each of them has."""
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

    def _marks(self, phase: Phase) -> bool:
        """Return whether ``phase`` is one of several dense ones without a code after which units are left out.

        After a code zeros have no sign to rely on.
        """
        order = self.order or self.plan.phases
        for dense, run in groupby(order, lambda each: each.format is Format.DENSE):
            phases = tuple(run)
            if phase in phases:
                return dense and phases[-1] is not order[-1] and all(each.code is None for each in phases)
        return False

    def _sparse(self, segment: int, marked: bool) -> int:
        spec = self.segments[segment]
        result = self._made(spec.part, self.rank, spec.ranks)
        self.statements.append(Sparsify(result, segment, marked))
        return result

    def _filled(self, segment: int, phase: Phase) -> int:
        """Return the number of ``segment`` as ``phase``, the next one, sends it."""
        format = phase.format
        spec, block = self.segments[segment], _whole(format)
        if self._bare or format not in FILLING or spec.block >= block:
            return segment
        result = self._made(spec.part, self.rank, spec.ranks, block, max(spec.spread, block))
        self.statements.append(Fill(result, segment, format, self._marks(phase)))
        return result


def _whole(format: Format) -> int:
    """Return the slots of the blocks that ``format`` sends as a whole or not at all."""
    return FULL if format is Format.DENSE else max(format.block, 1)
