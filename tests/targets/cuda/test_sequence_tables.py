"""Tables of call sequences: what can't be played is refused when it is loaded, and what can does what C++ does."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import pytest
import torch

from tests.support.cases import DTYPES, KINDS, assert_same_bits, dense_tensor, sparse_tensor
from tests.support.emulated import Emulated, Result, compiled_unit, interpreter, programs_of
from tests.support.messages import forget_messages, messages_among
from tests.support.shipped import SHIPPED, plan_of_shipped
from zenc.codegen.call_program import CallProgram, CallStatement, call_program
from zenc.codegen.call_sequence import render_sequence
from zenc.errors import InternalError
from zenc.plan.requirements import allowed
from zenc.rank_ir.lower import lower
from zenc.runtime.gpu.library import CallLibrary
from zenc.wire.constants import TABLE_HEADER

FEW = [(name, allowed(plan_of_shipped(name), (3, 4, 2, 8))[0]) for name in SHIPPED]


def of(name: str, size: int = 4, rank: int = 1) -> CallProgram:
    return call_program(lower(plan_of_shipped(name), size, rank))


def refusal(words: list[int]) -> str:
    """Why the table is refused; empty: it is not."""
    try:
        interpreter().unload_program(interpreter().load_program(words))
    except InternalError as error:
        return error.diagnostics[0].message.partition("played: ")[2]
    return ""


@pytest.mark.parametrize(("name", "size"), FEW)
def test_tables_of_plans_are_loaded(name, size):
    assert {refusal(of(name, size, rank).words) for rank in range(size)} == {""}


@pytest.mark.parametrize("name", ["balanced", "holders", "zen_cluster"])
def test_a_table_that_is_cut_short_is_refused_wherever_it_is(name):
    whole = of(name, 8).words
    for end in range(len(whole)):
        short = whole[:end]
        assert refusal(short)
        if end > len(TABLE_HEADER):
            short[2] = end  # it says so itself
            assert refusal(short)


@pytest.mark.parametrize("name", ["balanced", "dense_ring", "holders", "omnireduce"])
def test_loading_ends_whatever_a_word_is(name):
    whole, draw = of(name).words, random.Random(name)
    for at in range(len(whole)):
        for word in (-1, 1 << 62, -(1 << 63), draw.randrange(9), whole[at] + 1):
            refusal([*whole[:at], word, *whole[at + 1 :]])


def changed(program: CallProgram, place: int, *arguments: object) -> list[int]:
    """The table with other arguments of the statement in ``place``."""
    statement = program.statements[place]
    other = CallStatement(statement.operation, arguments)  # type: ignore[arg-type]
    statements = (*program.statements[:place], other, *program.statements[place + 1 :])
    return replace(program, statements=statements).words


OUT_OF_BOUNDS = "a number of it is out of bounds"


@pytest.mark.parametrize("wrong", [-1, 11, 1 << 40])
def test_numbers_out_of_bounds_are_refused(wrong):
    """Of ranks, segments and formats; there are 11 segments."""
    program = of("balanced")
    places = {name: [s.operation for s in program.statements].index(name) for name in ("send", "merge", "begin")}
    send, merge = (program.statements[places[name]].arguments for name in ("send", "merge"))
    for place, arguments in (
        ("send", (wrong, *send[1:])),
        ("send", (send[0], (wrong,), "announced")),
        ("send", (*send[:2], wrong)),
        ("merge", (wrong, *merge[1:])),
        ("merge", (*merge[:2], (wrong,))),
        ("begin", (wrong, "segments", "auto")),
    ):
        assert refusal(changed(program, places[place], *arguments)) == OUT_OF_BOUNDS
    assert refusal(replace(program, rank=wrong).words) == OUT_OF_BOUNDS
    assert refusal(replace(program, segments=((wrong, *program.segments[0][1:]), *program.segments[1:])).words)


def test_a_table_says_what_is_wrong_with_it():
    program = of("balanced")
    assert refusal(replace(program, statements=program.statements[:-1]).words) == "its statements are not whole"
    assert refusal([*program.words, 99]) == "it is cut short"


def test_another_version_is_refused():
    words = of("balanced").words
    words[1] += 1
    assert refusal(words) == "it is of another version"


JOINED = """#define zenc_all_reduce {name}
namespace of_{name} {{
{code}
}}
#undef zenc_all_reduce
"""


class OneOf(CallLibrary):
    """The sequences of one scheme in a unit of many."""

    def __init__(self, whole: CallLibrary, name: str) -> None:
        super().__init__(whole.path)
        self._library.zenc_all_reduce = self._library[name]
        self._library.zenc_all_reduce.argtypes = whole._library.zenc_all_reduce.argtypes


@cache
def every() -> CallLibrary:
    """The compiled sequences of all shipped schemes, in one unit: the headers are nearly all of it."""
    codes = {name: render_sequence(programs_of(plan_of_shipped(name), size)) for name, size in FEW}
    first = "\n".join(JOINED.format(name=name, code=code) for name, code in codes.items())
    entry = 'extern "C" ZENC_EXPORT zenc::i64 zenc_all_reduce(zenc::Call*) { return zenc::UNUSABLE_GROUP; }'
    return compiled_unit('#include "zenc_host/call/entry.h"\n' + first + entry)


@pytest.mark.parametrize("number", range(len(FEW)), ids=lambda number: "-".join(map(str, FEW[number])))
def test_tables_and_compiled_sequences_play_alike(number):
    """Every message is the same byte for byte, and so is the sum."""
    name, size = FEW[number]
    make, kind = (dense_tensor if number % 3 == 2 else sparse_tensor), KINDS[number % len(KINDS)]
    inputs = [make(kind, rank, size, 200, 3, DTYPES[number % 4], number) for rank in range(size)]
    played = []
    for unit in (None, OneOf(every(), name)):
        forget_messages()
        with Emulated(plan_of_shipped(name), size, unit=unit) as ranks:
            results = [ranks.run([tensor.clone() for tensor in inputs], op) for op in ("sum", "mean")]
        played.append((results, messages_among(size)))
    (tables, theirs), (codes, messages) = played
    assert theirs == messages and len(theirs) >= size
    for table, code in zip([*tables[0], *tables[1]], [*codes[0], *codes[1]], strict=True):
        assert isinstance(table, Result) and isinstance(code, Result)
        assert_same_bits([table.tensor, code.tensor])
        assert (table.counts_in, table.counts_out) == (code.counts_in, code.counts_out)


def test_digests_of_messages_tell_them_apart():
    """So that the test above can fail."""
    found = []
    for scale in (1.0, 1.0, 2.0):
        forget_messages()
        with Emulated(plan_of_shipped("balanced"), 2) as ranks:
            ranks.run([scale * torch.ones(8, 1) for _ in range(2)])
        found.append(messages_among(2))
    assert found[0] == found[1] != found[2]
