"""Fixed cost of a call on a GPU: work on the stream, waits, and tables of sequences, for any tensor."""

import ctypes
import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest
import torch

from tests.emulator.build import engine
from tests.support.cases import DTYPES, KINDS, dense_tensor, same_bits, sparse_tensor
from tests.support.emulated import Emulated, Result, compiled_unit, programs_of
from tests.support.emulated_gpu import emulated_ranks
from tests.support.shipped import SHIPPED, plan_of_shipped
from zenc.api import compile, compile_text
from zenc.codegen.build.own_files import open_library
from zenc.codegen.call_program import render_sequence
from zenc.codegen.render import headers
from zenc.plan.requirements import allowed
from zenc.runtime.gpu.capacity import LearnedCapacity
from zenc.runtime.gpu.library import CallLibrary

SIZE = 4
EXACT, ALL = 0.0, 1.0
"""Capacity as shares of units: none stated, and all."""
COUNTED = {
    "kernels": "cuLaunchKernel", "to device": "cuMemcpyHtoDAsync", "on device": "cuMemcpyDtoDAsync",
    "to host": "cuMemcpyDtoHAsync", "memsets": "cuMemsetD8Async", "waits": "wait", "groups": "ncclGroupEnd",
}  # fmt: skip
"""Kind -> the counted function."""


def once(rank: int, size: int) -> torch.Tensor:
    """Return rows of units that come once."""
    generator = torch.Generator().manual_seed(rank)
    ids = torch.randperm(400, generator=generator)[:40]
    values = torch.randn(40, 3, generator=generator)
    return torch.sparse_coo_tensor(ids[None], values, (400, 3), check_invariants=False)


DIRECT = """
scheme direct {
    communication: point_to_point  aggregation: incremental  partition: parallelism  balance: balanced by holders
}
"""
"""``holders`` with a pull from each owner at once, for ranks of one switch."""


def costs_of(name: str, make: Callable[[int, int], torch.Tensor], room: float) -> dict[str, int]:
    """Return counts of rank 0's second call."""
    plan = compile_text(DIRECT).plan if name == "direct" else plan_of_shipped(name)
    with Emulated(plan, SIZE) as ranks:
        tensors = [make(rank, SIZE) for rank in range(SIZE)]
        changes = {"own_share": [room] * SIZE, "sum_share": [room] * SIZE} if room else {}
        ranks.run(tensors, **changes)
        libraries = ranks.ranks[0].device.libraries
        before = {kind: libraries.calls(function, 0) for kind, function in COUNTED.items()}
        found = ranks.run(tensors, **changes)
        assert all(isinstance(each, Result) for each in found)
        expected = sum(tensor.to_dense().double() for tensor in tensors)
        assert all(torch.allclose(each.tensor.to_dense().double(), expected, atol=1e-4) for each in found)
        return {kind: libraries.calls(function, 0) - before[kind] for kind, function in COUNTED.items()}


def large(rank: int, size: int) -> torch.Tensor:
    """Return rows, some twice, of a long table: more than one block ranks or sorts."""
    ids = torch.randint(700_000, (9000,), generator=torch.Generator().manual_seed(rank))
    return torch.sparse_coo_tensor(ids[None], torch.ones(9000, 1), (700_000, 1), check_invariants=False)


MAKERS = {
    "dense": lambda rank, size: dense_tensor("random", rank, size, 400, 3, torch.float32, 1),
    "large": large,
    "once": once,
    "duplicates": lambda rank, size: sparse_tensor("random", rank, size, 400, 3, torch.float32, 1),
}


COSTS = [
    ("balanced", "dense", EXACT, (9, 0, 0, 0, 1, 3, 4)),
    ("balanced", "once", EXACT, (11, 0, 0, 0, 3, 3, 4)),
    ("balanced", "duplicates", EXACT, (12, 0, 0, 0, 3, 3, 4)),
    ("balanced", "large", EXACT, (26, 0, 0, 0, 4, 3, 4)),
    ("balanced", "dense", ALL, (8, 0, 0, 0, 1, 1, 2)),
    ("balanced", "once", ALL, (11, 0, 0, 0, 3, 1, 2)),
    ("holders", "once", EXACT, (14, 0, 0, 0, 3, 3, 6)),
    ("direct", "once", EXACT, (14, 0, 0, 0, 3, 3, 4)),
]
"""Scheme, input, capacity as a share of units, and the most of each kind in ``COUNTED``."""


@pytest.mark.parametrize(
    ("name", "kind", "room", "most"), COSTS, ids=[f"{name}-{kind}-{room:g}" for name, kind, room, _ in COSTS]
)
def test_a_call_costs_no_more(name, kind, room, most):
    found = costs_of(name, MAKERS[kind], room)
    assert all(found[kind] <= bound for kind, bound in zip(COUNTED, most, strict=True)), str(found)


DRIVER_CALLS = {
    name.removesuffix("_v2") for name in re.findall(r"X\(CUresult, (cu\w+)", headers("cuda")["cuda/zenc_host/driver.h"])
}


def counted(work: Callable[[torch.Tensor], object], tensor: torch.Tensor) -> int:
    """Count calls of functions in Python that ``work(tensor)`` makes on this thread."""
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        work(tensor)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(("learns", "in_driver"), [(False, 14), (True, 5)])
def test_a_call_that_was_made_before_is_short(learns, in_driver):
    """A tensor without values counts the calls from ``all_reduce`` into C++ and in the driver."""
    ranks = emulated_ranks(compile("balanced", ranks=2), 2, capacity=LearnedCapacity() if learns else None)
    tensors = [torch.zeros(1) for _ in ranks]

    def call(rank: int) -> int:
        return counted(ranks[rank].collective.all_reduce, tensors[rank])

    def in_all() -> dict[str, int]:
        return {name: ranks[0].gpu.calls(name) for name in DRIVER_CALLS}

    with ThreadPoolExecutor(2) as threads:
        for _ in range(4):  # first the memory and the room that the others keep are learned
            before = in_all()
            in_python = list(threads.map(call, range(2)))
        made = {name: count - before[name] for name, count in in_all().items() if count > before[name]}
    queries = made.pop("cuEventQuery")
    assert max(in_python) <= 40
    assert sum(made.values()) <= in_driver and queries < 1000, made


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
