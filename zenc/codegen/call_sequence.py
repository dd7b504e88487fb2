"""Call sequences of the host's side of GPUs, rendered from rank programs: as C++ that people read, and as data.

    sequence.json = {"zenc_sequence": version, "size": n, "ranks": [program*]}     # ``CallProgram`` of each, in order
    sequence.cpp  = the same as a unit: a function for each rank

Both are filled with numbers and names of ours alone: no text of a user reaches them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from zenc.codegen.call_program import Argument, CallProgram, call_program
from zenc.codegen.render import environment
from zenc.rank_ir.ir import RankProgram
from zenc.scheme.model import Format
from zenc.wire.constants import SEQUENCE_VERSION, TABLE_ENUMS, WIRE_FORMATS

CODE, DATA = "sequence.cpp", "sequence.json"


@dataclass(frozen=True, slots=True)
class SequenceInputs:
    """The inputs of both templates: the programs of some ranks of one group of ``size``, of one plan."""

    size: int
    version: int
    programs: tuple[CallProgram, ...]


def render_sequence(programs: Iterable[RankProgram], name: str = CODE) -> str:
    """The file ``name`` with the programs of some ranks of one group and plan."""
    made = tuple(call_program(program) for program in programs)
    inputs = SequenceInputs(made[0].size, SEQUENCE_VERSION, made)
    jinja = environment().overlay()
    jinja.filters.update(cpp=_cpp, json=json.dumps, parts=_parts)
    return jinja.get_template(f"cuda/host/{name}.j2").render({n: getattr(inputs, n) for n in SequenceInputs.__slots__})


def _cpp(argument: Argument) -> str:
    """An argument, or a word of a row, as C++ has it."""
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
    """Parts in words, as a comment."""
    numbers = [str(part) for part in parts]
    return f"  // part{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}" if numbers else ""
