"""Call programs: rank programs as the host's side of a GPU plays them, for C++, JSON and tables of words alike.

    CallProgram   = size rank parts  segments: row*  cuts: row*  pieces: number*  CallStatement*
    row           = (number | symbol)*                 # the fields of SEGMENT_SPEC, of SLOT_CUT
    CallStatement = operation  (number | symbol | number*)*

Operations and symbols are those of ``TABLE_ENUMS``, and the names of formats. In addition to the rank program, a
message is ``announced`` by a control message, which says that both ranks make the same call, and brings the counts of
its segments: always where counts are not known, and otherwise the first from one rank to another. By holders each
segment has a cut: the slots of its part that its ranks hold.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

from zenc.codegen.render import environment
from zenc.rank_ir.ir import (
    FULL,
    WHOLE,
    Agree,
    AnyStatement,
    Carries,
    Decode,
    Encode,
    Exchange,
    Fill,
    Merge,
    Message,
    RankPhase,
    RankProgram,
    Select,
    Sparsify,
    Split,
    made_by,
    used_by,
)
from zenc.scheme.compression import Code
from zenc.scheme.model import Format
from zenc.wire.codes import code_parameters
from zenc.wire.constants import NO_CUT, SEQUENCE_VERSION, TABLE_ENUMS, WIRE_FORMATS, WIRE_NUMBERS

Ranks: TypeAlias = tuple[int, ...]
Key: TypeAlias = tuple[int, Ranks]
"""A part, and ranks in ascending order."""


@dataclass(frozen=True, slots=True)
class Subset:
    """The slots of a part by their holders; ``rank`` is -1 where there are ``pieces``."""

    part: int
    rank: int
    marked: bool = False
    pieces: tuple[int, ...] = ()


@dataclass(slots=True)
class OwnerSubsets:
    """The subsets that are asked for, by part and ranks, and whether as bitmaps: others are needed only as counts.

    The owner of a part holds all of its slots, so a sum with its contribution has those of the owner alone.
    """

    marked: dict[Key, bool] = field(default_factory=dict)

    def ask(self, of: Key, *, marked: bool) -> None:
        """Ask for the subset of a part by ranks; for several ranks also for that of each, as bitmaps."""
        part, ranks = key = canonical(of)
        several = len(ranks) > 1
        self.marked[key] = self.marked.get(key, False) or marked or several
        for rank in ranks if several else ():
            self.ask((part, (rank,)), marked=True)

    def numbers(self) -> dict[Key, int]:
        """Return the number of each key, as ``canonical`` has it, in ``made``."""
        order = sorted(self.marked, key=lambda key: (len(key[1]) > 1, not self.marked[key], key))
        return {key: number for number, key in enumerate(order)}

    def made(self) -> tuple[Subset, ...]:
        """Return all subsets that were asked for: first those of one rank, and of these first the marked ones."""
        numbers = self.numbers()
        return tuple(
            Subset(part, ranks[0], self.marked[part, ranks])
            if len(ranks) == 1
            else Subset(part, -1, True, tuple(numbers[part, (rank,)] for rank in ranks))
            for part, ranks in numbers
        )


def canonical(of: Key) -> Key:
    """Return the key with the owner alone if it is among the ranks, as it has all slots."""
    part, ranks = of
    return part, (part,) if part in ranks else ranks


SELECTS_BY = ("full", "chosen")
"""Segments of all slots by which units of a sum are selected; they follow those of the rank program."""
Numbers: TypeAlias = tuple[int, ...]
Argument: TypeAlias = int | str | Numbers
Row: TypeAlias = tuple[int | str, ...]

OPERATIONS = {name: number for number, name in enumerate(TABLE_ENUMS["Operation"])}
SYMBOLS = {
    **{name: number for members in TABLE_ENUMS.values() for number, name in enumerate(members)},
    **{wire.value: number for wire, number in WIRE_NUMBERS.items()},
    Format.AUTO.value: len(WIRE_FORMATS),
}
"""The words of arguments that have a name."""


@dataclass(frozen=True, slots=True)
class CallStatement:
    """A statement of a call program; ``parts`` are those of its segments, for people."""

    operation: str
    arguments: tuple[Argument, ...]
    parts: Numbers = ()


@dataclass(frozen=True, slots=True)
class CallProgram:
    """The program of ``rank`` among ``size`` in a call of a GPU."""

    size: int
    rank: int
    parts: int
    segments: tuple[Row, ...]
    cuts: tuple[Row, ...]
    pieces: Numbers
    statements: tuple[CallStatement, ...]

    @property
    def words(self) -> list[int]:
        """The table, as ``templates/cuda/zenc_host/table.h`` reads it."""
        rows = [_word(word) for row in (*self.segments, *self.cuts) for word in row]
        counts = [self.size, self.rank, self.parts, len(self.segments), len(self.cuts), len(self.pieces)]
        found = [*counts, *rows, *self.pieces]
        for statement in self.statements:
            found.append(OPERATIONS[statement.operation])
            for argument in statement.arguments:
                found += [len(argument), *argument] if isinstance(argument, tuple) else [_word(argument)]
        return found


def _word(argument: int | str) -> int:
    return argument if isinstance(argument, int) else SYMBOLS[argument]


def call_program(program: RankProgram, whole: RankProgram | None = None) -> CallProgram:
    """Return ``program`` for the host's side of a GPU; a part of ``whole`` has and shares the cuts of that."""
    by_holders, subsets = bool((whole or program).expand.sets), _subsets(whole or program)
    cuts, pieces = list[Row](), list[int]()
    for subset in subsets.made():
        cuts.append((subset.part, subset.rank, int(subset.marked), len(pieces), len(subset.pieces)))
        pieces += subset.pieces
    statements = tuple(_Statements(program).all())
    segments = tuple(_rows(program, subsets, by_holders))
    return CallProgram(program.size, program.rank, program.parts, segments, tuple(cuts), tuple(pieces), statements)


def _rows(program: RankProgram, subsets: OwnerSubsets, by_holders: bool) -> Iterator[Row]:
    uses = Counter(chain.from_iterable(used_by(statement) for statement in program.statements))
    sums = {statement.result for statement in program.statements if isinstance(statement, Merge)}
    numbers = subsets.numbers()
    for number, spec in enumerate(program.segments):
        asked = Format.AUTO if spec.part == WHOLE else spec.sent_in or Format.DENSE
        alone = number in sums and uses[number] == 1
        result = "not_in_result" if not spec.final else "sum_for_result" if alone else "in_result"
        has_cut = by_holders and spec.part != WHOLE
        cut = numbers[canonical((spec.part, spec.ranks))] if has_cut else NO_CUT
        yield spec.part, asked.value, len(spec.ranks), spec.spread, result, cut
    for statement in program.statements:
        if isinstance(statement, Select):
            spec = program.segments[statement.segment]
            row = spec.part, Format.DENSE.value, len(spec.ranks), FULL, "not_in_result", NO_CUT
            yield from [row] * len(SELECTS_BY)


def _subsets(program: RankProgram) -> OwnerSubsets:
    """Return the slots that have to be known by holders: as bitmaps those of own rows, and of all that is summed."""
    subsets = OwnerSubsets()
    for statement in program.statements if program.expand.sets else ():
        summed = statement.segments if isinstance(statement, Merge) else ()
        for number in (*made_by(statement), *summed):
            spec = program.segments[number]
            if spec.part != WHOLE:
                subsets.ask((spec.part, spec.ranks), marked=not isinstance(statement, Exchange))
    return subsets


class _Statements:
    """The statements of a rank program, one after another; ``met`` are the ranks that exchanged controls with it.

    ``more``: segments so far that the rank program does not have.
    """

    def __init__(self, program: RankProgram) -> None:
        self.program = program
        self.met: set[tuple[str, int]] = set()
        self.more = 0

    def all(self) -> Iterator[CallStatement]:
        program = self.program
        pack = program.pack
        yield CallStatement("pack", (pack.results, program.own, pack.frees))
        for phase in program.phases:
            yield CallStatement("begin", (phase.kind.value, phase.carries.value, phase.format.value))
            if phase.code is not None:
                yield CallStatement("code", (*code_parameters(phase.code), _signed(phase.code)))
            for statement in phase.statements:
                yield from self._of(statement, phase)
        yield CallStatement("finish", (program.expand.segments,))

    def _of(self, statement: AnyStatement, phase: RankPhase) -> Iterator[CallStatement]:
        uses = used_by(statement)
        spent = tuple(segment for segment in statement.frees if segment in uses)
        match statement:
            case Exchange(number, sends, receives):
                yield from (self._message("send", message, phase) for message in sends)
                yield from (self._message("receive", message, phase) for message in receives)
                yield CallStatement("exchange", (number, spent))
            case Merge(result, segments):
                yield CallStatement("merge", (result, segments, spent), self._parts(segments))
            case Fill(result, segment, format, marks):
                yield CallStatement("fill", (result, segment, format.value, int(marks), spent), self._parts(uses))
            case Sparsify(result, segment, marked):
                yield CallStatement("sparsify", (result, segment, int(marked), spent), self._parts(uses))
            case Encode(result, segment, keeps=keeps):
                ranks = self.program.segments[result].ranks
                yield CallStatement("encode", (result, segment, ranks, int(keeps), spent), self._parts(uses))
            case Select(result, segment, keeps=keeps):
                ranks, full = self.program.segments[result].ranks, len(self.program.segments) + self.more
                self.more += len(SELECTS_BY)
                place = 2 * self.program.phases.index(phase) + (not statement.merged)
                arguments = result, segment, full, full + 1, place, ranks, int(keeps), spent
                yield CallStatement("select", arguments, self._parts(uses))
            case Decode(result, segment):
                yield CallStatement("decode", (result, segment, spent), self._parts(uses))
            case Agree(sets, peers):
                yield CallStatement("agree", (sets, peers))
            case Split(results, segment):
                yield CallStatement("split", (results, segment))

    def _message(self, operation: str, message: Message, phase: RankPhase) -> CallStatement:
        announced = False
        if phase.carries is not Carries.ROWS:
            announced = phase.format is not Format.DENSE or (operation, message.peer) not in self.met
            self.met.add((operation, message.peer))
        how = "announced" if announced else "unannounced"
        return CallStatement(operation, (message.peer, message.segments, how), self._parts(message.segments))

    def _parts(self, segments: Iterable[int]) -> Numbers:
        found = {self.program.segments[segment].part for segment in segments}
        return tuple(sorted(found - {WHOLE}))


def _signed(code: Code) -> int:
    """Return the seed of a code's draws as a signed word of the table; 0 without one."""
    seed: int = getattr(code, "seed", 0)
    return seed - ((seed & 1 << 63) << 1)


CODE, DATA = "sequence.cpp", "sequence.json"


@dataclass(frozen=True, slots=True)
class SequenceInputs:
    """The inputs of both templates: the programs of some ranks of one group of ``size``, of one plan."""

    size: int
    version: int
    programs: tuple[CallProgram, ...]


def render_sequence(programs: Iterable[RankProgram], name: str = CODE) -> str:
    """Render the file ``name`` with the programs of some ranks of one group and plan, in own numbers and names alone.

    sequence.json = {"zenc_sequence": version, "size": n, "ranks": [program*]}     # ``CallProgram`` of each
    sequence.cpp  = the same as a unit: a function for each rank
    """
    made = tuple(call_program(program) for program in programs)
    inputs = SequenceInputs(made[0].size, SEQUENCE_VERSION, made)
    jinja = environment().overlay()
    jinja.filters.update(cpp=_cpp, json=json.dumps, parts=_parts)
    return jinja.get_template(f"cuda/host/{name}.j2").render({n: getattr(inputs, n) for n in SequenceInputs.__slots__})


def _cpp(argument: Argument) -> str:
    if isinstance(argument, tuple):
        return f"list({', '.join(map(str, argument))})"
    return _NAMES.get(argument, "") if isinstance(argument, str) else f"{argument:d}"


def _format_name(format: Format) -> str:
    if format.block:
        return f"FORMAT_BLOCK + {WIRE_FORMATS.index(format) - WIRE_FORMATS.index(Format.BLOCK_2)}"
    return f"FORMAT_{format.name}"


_NAMES = {
    **{name: name.upper() for members in TABLE_ENUMS.values() for name in members},
    **{format.value: _format_name(format) for format in (*WIRE_FORMATS, Format.AUTO)},
}


def _parts(parts: Iterable[int]) -> str:
    numbers = [str(part) for part in parts]
    return f"  // part{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}" if numbers else ""
