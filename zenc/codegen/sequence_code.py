"""Sequences as C++: ``templates/cuda/host/sequence.cpp.j2``, filled with numbers and names of formats alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from zenc.codegen.render import environment
from zenc.codegen.sequence import Sequence
from zenc.codegen.statements import Statement
from zenc.plan.formats import WIRE_FORMATS
from zenc.scheme.model import Format

TEMPLATE = "cuda/host/sequence.cpp.j2"
FILE = "sequence.cpp"


@dataclass(frozen=True, slots=True)
class SequenceInputs:
    """What the template is filled with: the sequences of some ranks of one group of ``size``, of one plan."""

    size: int
    sequences: tuple[Sequence, ...]


def render_sequences(sequences: Iterable[Sequence]) -> dict[str, str]:
    """The sources of a unit with the sequences of some ranks of one group: file name -> text."""
    of_ranks = tuple(sequences)
    inputs = SequenceInputs(of_ranks[0].size, of_ranks)
    jinja = environment()
    jinja.filters.update(numbers=_numbers, parts=_parts, kind=_kind, format_name=_format_name)
    values = {field.name: getattr(inputs, field.name) for field in fields(inputs)}
    return {FILE: jinja.get_template(TEMPLATE).render(values)}


def _numbers(numbers: Iterable[int]) -> str:
    return "{" + ", ".join(f"{number:d}" for number in numbers) + "}"


def _parts(segments: Iterable[int], of: Sequence) -> str:
    """The parts of segments, in words."""
    found = sorted({of.segments[segment].part for segment in segments})
    return f"part{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}"


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
