"""Headers made of ``zenc.wire``, and the published numbers of SplitMix64."""

from __future__ import annotations

import ctypes

from zenc.codegen.render import RENDERED, declared, headers, include_dirs, rendered, templates_dir
from zenc.runtime.gpu.call_args import CallArgs, PhaseCount
from zenc.wire.constants import GOLDEN, WIRE_FORMATS
from zenc.wire.mix import ALL_BITS, mixed
from zenc.wire.structs import CALL, MESSAGE_HEADER, MESSAGE_HEADER_BYTES, Field, offset_of


def test_headers_are_rendered_where_compilers_find_them():
    for name in RENDERED:
        found = [folder / name.partition("/")[2] for folder in include_dirs("cuda")]
        (path,) = (path for path in found if path.is_file())
        path.write_text("rubbish")
        include_dirs("cuda")
        assert path.read_text("utf-8") == rendered()[name] == headers("cuda")[name]
    assert not any((templates_dir() / name).exists() for name in RENDERED), "they are not checked in"


def test_members_of_structs_are_laid_out_as_cpp_does():
    """Every field but an array is a machine word, so Python and C++ agree on offsets."""
    words = {"PhaseCount": 5 + 2 * len(WIRE_FORMATS), "char": 1 / 8}
    fields = [field for group in CALL.values() for field in group]
    assert ctypes.sizeof(PhaseCount) == 8 * words["PhaseCount"]
    assert ctypes.sizeof(CallArgs) == 8 * sum(words.get(field.kind, 1) * (field.length or 1) for field in fields)
    assert (offset_of(MESSAGE_HEADER, "bytes"), MESSAGE_HEADER_BYTES) == (16, 48)


def test_members_have_their_comments():
    made = declared((Field("u8", "a", "one"), Field("i64", "b"), Field("u32", "c", "x", 3)))
    assert made.splitlines() == ["    u8 a;  // one", "    i64 b;", "    u32 c[3];  // x"]


def test_the_first_numbers_of_a_stream():
    """Vigna's splitmix64.c gives these numbers from state 1234567."""
    states = [(1234567 + k * GOLDEN) & ALL_BITS for k in (1, 2, 3)]
    assert [mixed(state) for state in states] == [6457827717110365317, 3203168211198807973, 9817491932198370423]
