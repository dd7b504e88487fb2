"""Sequences as C++: templates in ``templates/cuda/host``, filled with numbers and names of formats alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from zenc.codegen.cuts import Cut
from zenc.codegen.render import environment
from zenc.codegen.sequence import holder_sequence, sequence
from zenc.codegen.statements import HolderSequence, Sequence, Statement
from zenc.plan.ir import Plan
from zenc.rank_ir.lower import lower
from zenc.scheme.model import Format
from zenc.wire.constants import WIRE_FORMATS

TEMPLATES = {Sequence: "cuda/host/sequence.cpp.j2", HolderSequence: "cuda/host/holders.cpp.j2"}
FILE = "sequence.cpp"


@dataclass(frozen=True, slots=True)
class SequenceInputs:
    """What a template is filled with: the sequences of some ranks of one group of ``size``, of one plan."""

    size: int
    sequences: tuple[Sequence | HolderSequence, ...]


def lowered(plan: Plan, size: int, rank: int) -> Sequence | HolderSequence:
    """What ``rank`` of ``size`` does under ``plan``; raises VerificationError."""
    program = lower(plan, size, rank)
    return holder_sequence(program) if plan.announces else sequence(program)


def render_sequences(sequences: Iterable[Sequence | HolderSequence]) -> dict[str, str]:
    """The sources of a unit with the sequences of some ranks of one group and plan: file name -> text."""
    of_ranks = tuple(sequences)
    inputs = SequenceInputs(of_ranks[0].size, of_ranks)
    jinja = environment()
    jinja.filters.update(numbers=_numbers, parts=_parts, kind=_kind, format_name=_format_name, pieces=_pieces)
    values = {field.name: getattr(inputs, field.name) for field in fields(inputs)}
    return {FILE: jinja.get_template(TEMPLATES[type(of_ranks[0])]).render(values)}


def _numbers(numbers: Iterable[int]) -> str:
    return "{" + ", ".join(f"{number:d}" for number in numbers) + "}"


def _parts(segments: Iterable[int], of: Sequence) -> str:
    """The parts of segments, in words."""
    found = sorted({of.segments[segment].part for segment in segments})
    return f"part{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}"


def _pieces(cuts: Iterable[Cut]) -> tuple[int, ...]:
    """Those of all cuts, one after another."""
    return tuple(piece for cut in cuts for piece in cut.pieces)


def _kind(statement: Statement) -> str:
    return type(statement).__name__


def _format_name(format: Format | None) -> str:
    """The constant of ``formats.h`` for a format; of what is not sent, that of ``sequence.h``."""
    if format is None:
        return "NOT_SENT"
    if format is Format.AUTO:
        return "FORMAT_AUTO"
    if format.block:
        return f"FORMAT_BLOCK + {WIRE_FORMATS.index(format) - WIRE_FORMATS.index(Format.BLOCK_2)}"
    return f"FORMAT_{format.name}"
