"""Layouts of structures that Python and C++ share, field by field.

    Field  = C++ type, name, what it holds, elements of an array
    layout = Field *, which C++ lays out without gaps at the end of any field

``packing`` and ``ctypes_fields`` make of a layout what Python reads and writes it by.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zenc.wire.constants import MOST_MESSAGE, WIRE_FORMATS


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a structure; ``length`` is the number of elements of an array, 0 for anything else."""

    kind: str
    name: str
    about: str = ""
    length: int = 0


MESSAGE_HEADER = (
    Field("u8", "magic", length=4),
    Field("u16", "version"),
    Field("u16", "nothing"),
    Field("u32", "segments"),
    Field("u32", "sender"),
    Field("u64", "bytes", "of the whole message"),
    Field("u64", "call"),
    Field("u64", "signature"),
    Field("u64", "units"),
)

SEGMENT_HEADER = (
    Field("u32", "part"),
    Field("u32", "origin_and_format", "origin << 8 | format"),
    Field("u64", "count"),
)

SEGMENT = (
    Field("u64*", "bitmap", "[words_of(slots)]: occupied local slots; bits beyond `slots` are 0"),
    Field("u64*", "ranks", "[ranks_of(slots)]: of the bitmap, from any number on, or of elias_fano's high words"),
    Field("u8*", "index", "the index part of its body, aligned to 8"),
    Field("void*", "values", "[count, width]: ascending slots, aligned to 8"),
    Field("u64", "slots", "of the part"),
    Field("u64", "count", "occupied slots"),
    Field("i64", "format", "FORMAT_...: how `index` is written"),
    Field("u64", "part"),
    Field("u64*", "actual", "null; or the number of occupied slots, ahead of the index"),
)
"""The occupied slots of one part and their values, as kernels of GPUs see them."""

CUT = (
    Field("i64", "units"),
    Field("i64", "width"),
    Field("i64", "parts"),
    Field("u64*", "tables", "of the mapping; null where it needs none"),
    Field("u64", "seed", "of a permutation or of hashes"),
    Field("i64", "block", "units that a permutation moves together"),
    Field("i64", "k", "hash functions that choose the cells of units"),
    Field("double", "r1", "cells of the parallel memory for each unit of a call"),
    Field("double", "r2", "of the serial memory"),
)
"""A tensor in parts, and the numbers of its mapping: what kernels of CPUs get of a geometry."""

SEGMENT_SPEC = (
    Field("i64", "part", "or WHOLE"),
    Field("i64", "asked", "FORMAT_...: in which it is sent first; of one that is not sent FORMAT_DENSE"),
    Field("i64", "ranks", "that contributed to it"),
    Field("i64", "spread", "slots that a unit may make it have, those filled up included; or FULL: it has all"),
    Field("i64", "in_result", "an InResult"),
    Field("i64", "cut", "of rows the cut whose slots they have; else NO_CUT"),
)
"""A segment of a rank program, as it is known before a call of a GPU."""

SLOT_CUT = (
    Field("i64", "part"),
    Field("i64", "rank", "who holds its slots; -1: those of the cuts pieces[first] and on"),
    Field("i64", "marked", "1: it is needed as a bitmap"),
    Field("i64", "first"),
    Field("i64", "number", "of pieces"),
)
"""Slots of a part, by holders. Cuts of one rank come first."""

PHASE_COUNT = (
    Field("i64", "bytes_sent", "control messages included, here and in the next three"),
    Field("i64", "bytes_received"),
    Field("i64", "messages_sent"),
    Field("i64", "messages_received"),
    Field("i64", "formats_sent", "bytes of bodies by format", len(WIRE_FORMATS)),
    Field("i64", "formats_received", length=len(WIRE_FORMATS)),
    Field("i64", "nanoseconds"),
)

CALL = {
    "What to sum.": (
        Field("u64", "number", "of the call in its group"),
        Field("u64", "signature", "the same on ranks that make the same call: plan, shape, dtype, operation"),
        Field("i64", "units"),
        Field("i64", "width"),
        Field("i64", "dtype", "its place in DTYPE_NAMES"),
        Field("u64", "seed", "of a permutation or of hashes"),
        Field("i64", "block", "units that a permutation moves together; 0 if there is none"),
        Field("u64*", "tables", "of a hashed mapping, on the device; else null"),
        Field("const i64*", "part_slots", "[parts] in the caller's memory: slots of each part; none by holders"),
        Field("const i64*", "ids", "[n] on the device, any order, duplicates; null for a dense tensor"),
        Field("i64", "n"),
        Field("const void*", "values", "[n, width], or [units, width] of a dense tensor"),
        Field("i64", "divisor", "each value is divided by it before it is summed"),
        Field("void*", "dense_out", "[units, width] for a dense result; null: the occupied units and their rows"),
        Field("const void*", "agreed", "null; or what the announce of these units ended with, before this call"),
    ),
    "What is lost, of plans that encode.": (
        Field("u64", "salt", "of the draws of codes: the same on all ranks"),
        Field("float*", "residual", "[units, width] on the device, to which losses are added; null: nothing is kept"),
        Field("const float*", "before", "[units, width] that the tensor, float32 then, is to have more; null: nothing"),
        Field("i64", "residual_undefined", "1: it has no zeros to which losses are added"),
        Field("i64", "finite", "1: it is asked for; then, of the sum"),
        Field("const u64*", "taken", "null; or bits [units] of the tensor's values, which are undefined beside them"),
        Field("Choose", "choose", "of sums; null: all units are chosen"),
        Field("i64", "chooses_rows", "1: it needs no rows of slots that nobody has"),
        Field("i64*", "part_bytes", "[parts] of the caller: of encoded sums. Parts are ranges of part_slots then"),
    ),
    "With what.": (
        Field("void*", "kernels", "what zenc_load_kernels gave"),
        Field("void*", "communicator", "what zenc_open_communicator gave"),
        Field("const void*", "program", "what zenc_load_program gave; null for compiled sequences"),
        Field("void*", "stream", "CUstream on which the input is ready, and the result will be"),
        Field("Allocate", "allocate"),
        Field("void*", "user"),
        Field("void*", "arena", "device memory for all but results, or null; `allocate` gives what it lacks"),
        Field("u64", "arena_bytes", "of it; aligned as well"),
        Field("i64", "deadline", "microseconds for any single wait"),
        Field("u64", "costs", "FormatCosts, on all ranks alike", 5),
    ),
    "Capacity mode (docs/adr/0024-capacity-mode.md), where own_share > 0: of the slots of a part the gradient of a "
    "rank occupies own_share at most, and a sum sum_share. Else the call is made again, exactly. With a report the "
    "call is captured, and what it finds comes there with each replay: 1 if it has to be made again, counts_in, "
    "counts_out.": (
        Field("double", "own_share"),
        Field("double", "sum_share"),
        Field("u64*", "report", "[1 + 2 * parts] pinned; null: the call is not captured"),
    ),
    "What came of it.": (
        Field("i64*", "ids_out", "[count_out], ascending, from `allocate`"),
        Field("void*", "values_out", "[count_out, width], from `allocate`"),
        Field("i64", "count_out"),
        Field("u64", "arena_wanted", "bytes: an arena of so many would have sufficed"),
        Field("i64*", "counts_in", "[parts] in the caller's memory: occupied units of this rank's gradient"),
        Field("i64*", "counts_out", "[parts]: of the sum"),
        Field("i64", "made_again", "1: there was not room for all in capacity mode, or a rank had other units"),
        Field("void*", "announced", "of an announce alone: what goes to zenc_release_agreed; its memory lives on"),
        Field("PhaseCount", "phases", "push, pull, announce", 3),
        Field("i64", "outcome", "an Outcome"),
        Field("i64", "peer", "whom a failure concerns, or -1"),
        Field("i64", "detail"),
        Field("char", "message", length=MOST_MESSAGE),
    ),
}
"""The one argument block of a call of a GPU, by what its fields are for."""

_CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q"}
_KINDS = {
    "u8": ctypes.c_uint8,
    "u16": ctypes.c_uint16,
    "u32": ctypes.c_uint32,
    "u64": ctypes.c_uint64,
    "i64": ctypes.c_int64,
    "double": ctypes.c_double,
    "char": ctypes.c_char,
}


def packing(layout: Sequence[Field]) -> struct.Struct:
    """Return the little-endian packing of a layout of integers; arrays of u8 are byte strings."""
    return struct.Struct("<" + "".join(f"{each.length}s" if each.length else _CODES[each.kind] for each in layout))


def offset_of(layout: Sequence[Field], name: str) -> int:
    """Return the bytes before the field ``name`` in the packing of ``layout``."""
    return packing(layout[: [field.name for field in layout].index(name)]).size


def ctypes_fields(layout: Sequence[Field], kinds: Mapping[str, Any] | None = None) -> tuple[tuple[str, Any], ...]:
    """Return ``_fields_`` of a ctypes.Structure; ``kinds`` are types of its own. Pointers are addresses."""
    known = {**_KINDS, **(kinds or {})}
    fields = []
    for each in layout:
        kind = ctypes.c_void_p if each.kind.endswith("*") else known[each.kind]
        fields.append((each.name, kind * each.length if each.length else kind))
    return tuple(fields)


MESSAGE_HEADER_BYTES = packing(MESSAGE_HEADER).size
SEGMENT_HEADER_BYTES = packing(SEGMENT_HEADER).size
