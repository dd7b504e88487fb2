"""Rank programs as the templates of call sequences take them: with announcements, and by holders with cuts."""

from __future__ import annotations

from collections.abc import Callable

from zenc.codegen.cuts import Cuts, Key
from zenc.codegen.statements import Fill, HolderSequence, Merge, Parcel, Segment, Sequence, Sparsify, Stretch, Transfer
from zenc.plan.ir import PhaseKind
from zenc.rank_ir import ir
from zenc.rank_ir.ir import WHOLE, Message, RankProgram, made_by
from zenc.scheme.model import Format


def sequence(program: RankProgram) -> Sequence:
    """``program``, over a cut that is fixed."""
    segments = tuple(Segment(s.part, len(s.ranks), s.block, s.spread, s.sent_in) for s in program.segments)
    phases, met = [], set[tuple[str, int]]()

    def parcel(way: str, message: Message, counted: bool) -> Parcel:
        announced = counted or (way, message.peer) not in met
        met.add((way, message.peer))
        return Parcel(message.peer, message.segments, announced, counted)

    for phase in program.phases:
        counted, statements = phase.format is not Format.DENSE, list[Transfer | Merge | Fill | Sparsify]()
        for statement in phase.statements:
            match statement:
                case ir.Exchange(number, sends, receives):
                    to = tuple(parcel("to", message, counted) for message in sends)
                    statements.append(Transfer(number, to, tuple(parcel("from", m, counted) for m in receives)))
                case ir.Merge(result, inputs):
                    statements.append(Merge(result, inputs))
                case ir.Fill(result, segment, format):
                    statements.append(Fill(result, segment, format))
                case ir.Sparsify(result, segment):
                    statements.append(Sparsify(result, segment))
        phases.append(Stretch(phase.kind, phase.format, tuple(statements)))
    complete = program.expand.segments
    return Sequence(program.rank, program.size, program.parts, segments, program.own, tuple(phases), complete)


def holder_sequence(program: RankProgram) -> HolderSequence:
    """``program``, by holders."""
    specs, phases, peers = program.segments, list[Stretch](), tuple[int, ...]()
    rows = [number for number, spec in enumerate(specs) if spec.part != WHOLE]
    numbers = {number: spec.origin for number, spec in enumerate(specs) if spec.part == WHOLE}
    numbers |= {number: place for place, number in enumerate(rows)}

    def parcels(messages: tuple[Message, ...], announced: bool) -> tuple[Parcel, ...]:
        return tuple(Parcel(m.peer, tuple(numbers[s] for s in m.segments), announced, announced) for m in messages)

    for phase in program.phases:
        statements, announced = list[Transfer | Merge | Fill | Sparsify](), phase.kind is PhaseKind.ANNOUNCE
        for statement in phase.statements:
            match statement:
                case ir.Exchange(number, sends, receives):
                    statements.append(Transfer(number, parcels(sends, announced), parcels(receives, announced)))
                case ir.Merge(result, inputs):
                    statements.append(Merge(numbers[result], tuple(numbers[segment] for segment in inputs)))
                case ir.Agree(_, with_whom):
                    peers = with_whom
        phases.append(Stretch(phase.kind, phase.format, tuple(statements)))

    def key(number: int) -> Key:
        return specs[number].part, specs[number].ranks

    cuts = _cuts(program, key)
    complete = tuple(numbers[segment] for segment in program.expand.segments)
    made = cuts.numbers(map(key, rows))
    return HolderSequence(program.rank, program.size, cuts.made(), made, peers, tuple(phases), complete)


def _cuts(program: RankProgram, key: Callable[[int], Key]) -> Cuts:
    """Which slots have to be known: as bitmaps those of own rows and of all that is summed."""
    cuts = Cuts()
    for statement in program.statements:
        marked = not isinstance(statement, ir.Exchange)
        summed = statement.segments if isinstance(statement, ir.Merge) else ()
        for number in (*made_by(statement), *summed):
            if program.segments[number].part != WHOLE:
                cuts.ask(key(number), marked=marked)
    return cuts
