"""Tables of call sequences act as the compiled C++."""

from __future__ import annotations

import ctypes
from functools import cache

import pytest
import torch

from tests.emulator.build import engine
from tests.support.cases import DTYPES, KINDS, dense_tensor, same_bits, sparse_tensor
from tests.support.emulated import Emulated, Result, compiled_unit, programs_of
from tests.support.shipped import SHIPPED, plan_of_shipped
from zenc.codegen.build.own_files import open_library
from zenc.codegen.call_program import render_sequence
from zenc.plan.requirements import allowed
from zenc.runtime.gpu.library import CallLibrary


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(engine()))
    library.emulatorMessages.restype = ctypes.c_uint64
    return library


def forget_messages() -> None:
    _library().emulatorForgetMessages()


def messages_among(size: int) -> dict[tuple[int, int], int]:
    """Return (from, to) -> a digest of all messages, of those pairs that sent any."""
    pairs = [(src, dst) for src in range(size) for dst in range(size)]
    digests = {pair: int(_library().emulatorMessages(*pair)) for pair in pairs}
    return {pair: digest for pair, digest in digests.items() if digest}


FEW = [(name, allowed(plan_of_shipped(name), (3, 4, 2, 8))[0]) for name in SHIPPED]


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
        self.functions["all_reduce"] = open_library(whole.path)[name]


@cache
def every() -> CallLibrary:
    """Compile the sequences of all shipped schemes in one unit, nearly all of which is headers."""
    codes = {name: render_sequence(programs_of(plan_of_shipped(name), size)) for name, size in FEW}
    first = "\n".join(JOINED.format(name=name, code=code) for name, code in codes.items())
    entry = 'extern "C" ZENC_EXPORT zenc::i64 zenc_all_reduce(zenc::Call*) { return zenc::UNUSABLE_GROUP; }'
    return compiled_unit('#include "zenc_host/table.h"\n' + first + entry)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(FEW)), ids=lambda number: "-".join(map(str, FEW[number])))
def test_tables_and_compiled_sequences_play_alike(number):
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
        assert same_bits([table.tensor, code.tensor])
        assert (table.counts_in, table.counts_out) == (code.counts_in, code.counts_out)


def test_digests_of_messages_tell_them_apart():
    found = []
    for scale in (1.0, 1.0, 2.0):
        forget_messages()
        with Emulated(plan_of_shipped("balanced"), 2) as ranks:
            ranks.run([scale * torch.ones(8, 1) for _ in range(2)])
        found.append(messages_among(2))
    assert found[0] == found[1] != found[2]
