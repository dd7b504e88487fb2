"""Rank programs for people, a line a statement, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from zenc.common.wording import count, runs_text, size_text
from zenc.rank_ir.ir import (
    WHOLE,
    Across,
    Agree,
    AnyStatement,
    Encode,
    Exchange,
    Expand,
    Fill,
    Merge,
    Message,
    RankPhase,
    RankProgram,
    SegmentSpec,
    Select,
    Sparsify,
    made_by,
    used_by,
)
from zenc.scheme.compression_words import key_of, selection_text, words_of
from zenc.wire.codes import encoded_bytes, is_static
from zenc.wire.formats import padded
from zenc.wire.structs import MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES

OPERATION = 10
"""The width of the column of operations, in letters."""


@dataclass(frozen=True, slots=True)
class ShownProgram:
    """A ``program`` of ``scheme`` among ``slots`` [parts] of each part, with units of ``width`` values."""

    scheme: str
    program: RankProgram
    slots: tuple[int, ...]
    width: int
    value_bytes: int

    def text(self) -> str:
        """Return the program as text, with phases as headings, and a line for each statement."""
        program = self.program
        made = sum(len(made_by(statement)) for statement in program.statements)
        lines = [
            f"{self.scheme} on rank {program.rank} of {program.size}: {count(program.parts, 'part')}, {made} segments",
            "",
            *([f"  transform  {words_of(program.transform)}"] if program.transform else []),
            *([f"  {key_of(program.select):<10} {selection_text(program.select)}"] if program.select else []),
            self._line(program.pack),
        ]
        for phase in program.phases:
            how = "one-shot" if phase.one_shot else "incremental"
            lines += ["", f"{phase.name}: {phase.carries.value} in {_format(phase)}, {how}"]
            for statement in phase.statements:
                lines += [self._line(statement), *self._inside(statement)]
        return "\n".join([*lines, "", self._line(program.expand)])

    def to_json(self) -> dict[str, Any]:
        """Return the program as JSON data: the fields of statements, and the bytes of messages where they are known."""
        program = self.program
        return {
            "scheme": self.scheme,
            "rank": program.rank,
            "size": program.size,
            "parts": program.parts,
            **({"transform": words_of(program.transform)} if program.transform else {}),
            **({key_of(program.select): selection_text(program.select)} if program.select else {}),
            "segments": [_segment_json(spec) for spec in program.segments],
            "own": list(program.own),
            "pack": self._statement_json(program.pack),
            "phases": [self._phase_json(phase) for phase in program.phases],
            "expand": self._statement_json(program.expand),
        }

    def _line(self, statement: AnyStatement) -> str:
        comment = "; ".join(self._comments(statement))
        line = f"  {type(statement).__name__.lower():{OPERATION}} {_body(statement)}"
        return f"{line}    # {comment}" if comment else line

    def _inside(self, statement: AnyStatement) -> list[str]:
        """Return the lines of the program of a tier with owners of its own, indented, without sizes of segments."""
        if not isinstance(statement, Across):
            return []
        program = replace(self, program=statement.program)
        return [f"    {line}" if line else "" for line in program.text().splitlines()]

    def _comments(self, statement: AnyStatement) -> Iterator[str]:
        specs = [self.program.segments[segment] for segment in made_by(statement)]
        if specs and isinstance(statement, Exchange | Merge):
            yield _contents(specs)
        if isinstance(statement, Exchange):
            yield from self._bytes_of(statement)
        if isinstance(statement, Select | Encode) and statement.keeps:
            yield "keeps what is lost"
        if statement.frees and not isinstance(statement, Expand):
            yield f"frees {_named(statement.frees)}"

    def _bytes_of(self, exchange: Exchange) -> Iterator[str]:
        for way, messages in (("out", exchange.sends), ("in", exchange.receives)):
            known = [self._message_bytes(message) for message in messages]
            if known and None not in known:
                yield f"{size_text(sum(each or 0 for each in known))} {way}"

    def _message_bytes(self, message: Message) -> int | None:
        """Return a message's bytes with headers, if known before a call: of full segments in codes of static size."""
        specs = [self.program.segments[segment] for segment in message.segments]
        if not all(spec.full and (spec.code is None or is_static(spec.code)) for spec in specs):
            return None
        bodies = [padded(self._value_bytes(spec)) for spec in specs]
        return MESSAGE_HEADER_BYTES + SEGMENT_HEADER_BYTES * len(bodies) + sum(bodies)

    def _value_bytes(self, spec: SegmentSpec) -> int:
        values = self.slots[spec.part] * self.width
        return encoded_bytes(spec.code, values, len(spec.ranks)) if spec.code else values * self.value_bytes

    def _phase_json(self, phase: RankPhase) -> dict[str, Any]:
        return {
            "kind": phase.kind.value,
            "name": phase.name,
            "format": phase.format.value,
            **({"code": words_of(phase.code)} if phase.code else {}),
            "one_shot": phase.one_shot,
            "carries": phase.carries.value,
            "statements": [self._statement_json(statement) for statement in phase.statements],
        }

    def _statement_json(self, statement: AnyStatement) -> dict[str, Any]:
        found: dict[str, Any] = {"operation": type(statement).__name__.lower()}
        match statement:
            case Exchange(number, sends, receives):
                found |= {"number": number, "sends": self._messages(sends), "receives": self._messages(receives)}
            case Agree(sets, peers):
                found |= {"of": list(sets), "peers": list(peers)}
            case Across(result, segment, ranks, program):
                inside = replace(self, program=program).to_json()
                found |= {"makes": [result], "of": [segment], "ranks": list(ranks), "program": inside}
            case _:
                found |= {"makes": list(made_by(statement)), "of": list(used_by(statement))}
        match statement:
            case Fill(format=format, marks=marks):
                found |= {"format": format.value, "marks": marks}
            case Sparsify(marked=marked):
                found["marked"] = marked
            case Select(selection=selection):
                found |= {"selection": selection_text(selection), "keeps": statement.keeps}
            case Encode(code=code):
                found |= {"code": words_of(code), "keeps": statement.keeps}
        return {**found, "frees": list(statement.frees)}

    def _messages(self, messages: Iterable[Message]) -> list[dict[str, Any]]:
        return [
            {"peer": each.peer, "segments": list(each.segments), "bytes": self._message_bytes(each)}
            for each in messages
        ]


def _body(statement: AnyStatement) -> str:
    match statement:
        case Exchange(number, sends, receives):
            messages = [
                *(f"to {message.peer} {_named(message.segments)}" for message in sends),
                *(f"from {message.peer} {_named(message.segments)}" for message in receives),
            ]
            return f"step {number}: {', '.join(messages)}"
        case Fill(result, segment, format, marks):
            return f"%{result} = %{segment} to {format.value}{', marked' if marks else ''}"
        case Sparsify(result, segment, marked):
            return f"%{result} = %{segment}{' as marked' if marked else ''}"
        case Select(result, segment, selection):
            return f"%{result} = {selection_text(selection)} of %{segment}"
        case Encode(result, segment, code):
            return f"%{result} = %{segment} as {words_of(code)}"
        case Across(result, segment, ranks):
            return f"%{result} = the sum of %{segment} of ranks {runs_text(ranks)}"
        case Agree(sets, peers):
            return f"{_named(sets)} with {runs_text(peers)}" if peers else _named(sets)
        case Expand(segments):
            return _named(segments)
    made, used = made_by(statement), used_by(statement)
    return f"{_named(made)} = {' + '.join(f'%{each}' for each in used)}" if used else _named(made)


def _format(phase: RankPhase) -> str:
    return f"{phase.format.value} as {words_of(phase.code)}" if phase.code else phase.format.value


def _contents(specs: Sequence[SegmentSpec]) -> str:
    parts, ranks = sorted({spec.part for spec in specs}), sorted({rank for spec in specs for rank in spec.ranks})
    what = "index sets" if parts == [WHOLE] else f"part{'s' if len(parts) > 1 else ''} {runs_text(parts)}"
    return f"{what} of {'rank' if len(ranks) == 1 else 'ranks'} {runs_text(ranks)}"


def _named(segments: Iterable[int]) -> str:
    return " ".join(f"%{segment}" for segment in segments)


def _segment_json(spec: SegmentSpec) -> dict[str, Any]:
    return {
        "part": None if spec.part == WHOLE else spec.part,
        "origin": spec.origin,
        "ranks": list(spec.ranks),
        "full": spec.full,
        "sent_in": spec.sent_in and spec.sent_in.value,
        "final": spec.final,
        **({"code": words_of(spec.code)} if spec.code else {}),
    }
