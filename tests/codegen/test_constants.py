"""Headers that are made of ``zenc.wire`` are those that are checked in; SplitMix64 draws what its authors publish."""

from __future__ import annotations

import ctypes

import pytest

from zenc.codegen.constants import declared, rendered
from zenc.codegen.templates import templates_dir
from zenc.runtime.gpu.call_args import CallArgs, PhaseCount
from zenc.wire.constants import GOLDEN, WIRE_FORMATS
from zenc.wire.mix import ALL_BITS, mixed
from zenc.wire.structs import CALL, MESSAGE_HEADER, MESSAGE_HEADER_BYTES, Field, offset_of


@pytest.mark.parametrize("header", rendered())
def test_checked_in_headers_are_those_of_the_tables(header):
    assert (templates_dir() / header).read_text("utf-8") == rendered()[header], "run `make tables`"


def test_members_of_structs_are_laid_out_as_cpp_does():
    """A machine word a field, but for arrays: so Python and C++ put everything at the same place."""
    words = {"PhaseCount": 5 + 2 * len(WIRE_FORMATS), "char": 1 / 8}
    fields = [field for group in CALL.values() for field in group]
    assert ctypes.sizeof(PhaseCount) == 8 * words["PhaseCount"]
    assert ctypes.sizeof(CallArgs) == 8 * sum(words.get(field.kind, 1) * (field.length or 1) for field in fields)
    assert (offset_of(MESSAGE_HEADER, "bytes"), MESSAGE_HEADER_BYTES) == (16, 48)


def test_comments_stand_in_one_column():
    made = declared(
        (Field("u8", "a", "one"), Field("u64*", "longer", "two"), Field("i64", "b"), Field("u32", "c", "x", 3))
    )
    assert made.splitlines() == [
        "    u8 a;         // one",
        "    u64* longer;  // two",
        "    i64 b;",
        "    u32 c[3];  // x",
    ]


def test_the_first_numbers_of_a_stream():
    """Those of Vigna's splitmix64.c from state 1234567 on."""
    states = [(1234567 + k * GOLDEN) & ALL_BITS for k in (1, 2, 3)]
    assert [mixed(state) for state in states] == [6457827717110365317, 3203168211198807973, 9817491932198370423]
