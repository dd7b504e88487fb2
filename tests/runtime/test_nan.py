"""Values that are integers, zero or not finite: exact sums, no unit is left out because of them, any NaN is one."""

import itertools
from functools import cache, partial

import pytest
import torch
import torch.distributed as dist

import zenc
from tests.support.cases import DTYPES, FILLING, FORMATS, dense_tensor, same_bits, scheme_text, tiered_text, wrong_sums
from tests.support.emulated import Emulated
from tests.support.emulated_gpu import emulated_ranks
from tests.support.local import collectives, run_all
from tests.support.ranks import Ranks
from zenc.api import compile
from zenc.codegen.artifact import Artifact

BITS = {torch.float32: torch.int32, torch.float64: torch.int64, torch.float16: torch.int16, torch.bfloat16: torch.int16}
MANTISSA = {torch.float32: 23, torch.float64: 52, torch.float16: 10, torch.bfloat16: 7}
CUT = "partition: parallelism balance: imbalanced"
CODES = (
    "f16", "bf16", "int(8)", "fp8", "levels(4)", "sign", "vote", "onebit", "ternary",
    *("fixed(8)", "fixed(8) by asc"),
)  # fmt: skip


@cache
def words(dtype: torch.dtype) -> dict[str, int]:
    """Return bits of NaNs of both signs, quiet and not, with payloads, and of infinities."""
    sign, quiet = -(1 << (8 * dtype.itemsize - 1)), 1 << (MANTISSA[dtype] - 1)
    infinity = -sign - (1 << MANTISSA[dtype])
    return {
        "one": infinity | quiet,
        "payload": infinity | quiet | 5,
        "negative": sign | infinity | quiet | 3,
        "signalling": infinity | 1,
        "infinity": infinity,
        "minus infinity": sign | infinity,
    }


def gradient(rank: int, dtype: torch.dtype, n: int = 200) -> torch.Tensor:
    """Return a gradient that pairs every kind of non-finite value with itself, others and numbers; most are numbers."""
    found = torch.randn(n, generator=torch.Generator().manual_seed(rank)).to(dtype)
    strange = torch.tensor(list(words(dtype).values())).to(BITS[dtype]).view(dtype)
    found[:36] = strange.repeat(6) if rank else strange.repeat_interleave(6)
    found[36 + 6 * rank : 42 + 6 * rank] = strange
    return found


def nans(result: torch.Tensor) -> set[int]:
    return set(result[result.isnan()].view(BITS[result.dtype]).tolist())


@pytest.mark.parametrize("push", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_sum_is_one_nan(push, dtype):
    artifact = zenc.compile_text(scheme_text("ring", "incremental", CUT, push, "dense"), ranks=2)
    inputs = [gradient(rank, dtype) for rank in range(2)]
    host = run_all(collectives(artifact, 2), [each.clone() for each in inputs], "mean")
    with Emulated(artifact.plan, 2) as ranks:
        found = [*host, *(each.tensor for each in ranks.run(inputs, "mean"))]
    assert all(nans(each) == {words(dtype)["one"]} for each in found)
    assert all(torch.equal(each.view(BITS[dtype]), found[0].view(BITS[dtype])) for each in found)
    assert torch.equal(found[0].isnan(), (inputs[0] + inputs[1]).isnan())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype is not torch.float64], ids=str)
def test_a_code_means_one_nan(code, dtype):
    text = scheme_text("point_to_point", "incremental", CUT, f"dense as {code}", f"dense as {code}")
    lossy = text.replace("unit:", f"feedback: {'none' if code == 'vote' else 'residual'} unit:")
    inputs = [gradient(rank, dtype) for rank in range(2)]
    host = run_all(collectives(zenc.compile_text(lossy, ranks=2), 2), [each.clone() for each in inputs], name="w")
    gpus = emulated_ranks(zenc.compile_text(lossy, ranks=2, target="cuda", arch="none"), 2)
    found = [*host, *run_all([rank.collective for rank in gpus], [each.clone() for each in inputs], name="w")]
    assert all(nans(each) == {words(dtype)["one"]} for each in found)
    assert all(torch.equal(each.view(BITS[dtype]), found[0].view(BITS[dtype])) for each in found)


WORDS = ("dense", "coo", "bitmap", "elias_fano", "block(8)", "auto")
PAIRS = tuple(itertools.product(WORDS, WORDS))
SIZE = 3
COMBINATION = ("point_to_point", "incremental", "partition: parallelism balance: imbalanced")


def announced(rank: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    """Return units of all kinds of zeros, one that ranks cancel, one with a -0, and one whose mean underflows."""
    negative = torch.tensor(-0.0)
    rows = {
        1: torch.zeros(width),
        5: torch.ones(width),
        7: torch.full((width,), (1.0, -1.0, 0.0)[rank]),
        9 + rank: torch.zeros(width),
        17: negative.expand(width),
        30 + rank: negative.expand(width),
    }
    values = torch.stack([value if rank or unit != 5 else value * 2 for unit, value in rows.items()]).to(dtype)
    return torch.sparse_coo_tensor(torch.tensor([list(rows)]), values, (40, width), check_invariants=False)


EVERY = sorted({unit for rank in range(SIZE) for unit in announced(rank, 1, torch.float32)._indices()[0].tolist()})


def played(artifact: Artifact, inputs: list[torch.Tensor], op: str) -> list[torch.Tensor]:
    """Return the sums of both targets: ranks of the CPU, then of emulated GPUs."""
    host = run_all(collectives(artifact, len(inputs)), [tensor.clone() for tensor in inputs], op)
    with Emulated(artifact.plan, len(inputs)) as ranks:
        return [*host, *(found.tensor for found in ranks.run(inputs, op))]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("unit", ["row", "element"])
@pytest.mark.parametrize("push, pull", PAIRS)
def test_what_a_rank_announces_is_in_the_sum(push, pull, unit):
    turn, width = PAIRS.index((push, pull)), 1 if unit == "element" else 3
    dtype = (torch.float32, torch.bfloat16, torch.float64, torch.float16)[turn % 4]
    artifact = zenc.compile_text(scheme_text(*COMBINATION, push, pull, unit), ranks=SIZE)
    inputs = [announced(rank, width, dtype) for rank in range(SIZE)]
    sums = played(artifact, inputs, "sum")
    assert wrong_sums(sums, inputs) == [] and same_bits(sums)
    (units,) = {tuple(each._indices()[0].tolist()) for each in sums}
    fills = pull in FILLING or push == "block(8)"
    assert set(units) >= set(EVERY) if fills else list(units) == EVERY


@pytest.mark.parametrize("pull", ["coo", "block(8)", "dense"])
def test_zeros_of_dense_tensors_do_not_travel_and_come_back_as_they_are(pull):
    artifact = zenc.compile_text(scheme_text(*COMBINATION, "dense", pull, "row"), ranks=SIZE)
    inputs = [dense_tensor("random", rank, SIZE, 41, 3, torch.float32, 1) for rank in range(SIZE)]
    inputs[0][40] = -0.0
    sums = played(artifact, inputs, "mean")
    assert same_bits(sums)
    assert not torch.signbit(sums[0][sums[0] == 0]).any()


@pytest.mark.parametrize("inner", [("dense", "coo"), ("coo", "dense"), ("dense", "dense")])
@pytest.mark.parametrize("outer", [("dense", "coo"), ("coo", "coo"), ("dense", "dense")])
def test_tiers_announce_too(inner, outer):
    text = tiered_text((2,), [COMBINATION, COMBINATION], [inner, outer])
    inputs = [announced(rank % 3, 3, torch.float32) for rank in range(4)]
    sums = played(zenc.compile_text(text, ranks=4, scheme="tiered"), inputs, "sum")
    assert wrong_sums(sums, inputs) == [] and same_bits(sums)
    assert all(set(EVERY) <= set(each._indices()[0].tolist()) for each in sums)
    if inner[1] == "coo":
        assert all(each._indices()[0].tolist() == EVERY for each in sums)


INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
UNITS, WIDTH = 37, 3


def _numbers(rank: int, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """Draw numbers over the whole range of ``dtype``, zeros, and its ends."""
    info, generator = torch.iinfo(dtype), torch.Generator().manual_seed(rank)
    found = torch.randint(info.min, info.max, shape, generator=generator, dtype=torch.int64).to(dtype)
    found.view(-1)[:3] = torch.tensor([info.min, info.max, 0], dtype=dtype)
    return found


def dense(rank: int, dtype: torch.dtype) -> torch.Tensor:
    found = _numbers(rank, dtype, (UNITS, WIDTH))
    found[rank % 5 :: 5] = 0
    return found


def sparse(rank: int, dtype: torch.dtype, dims: int) -> torch.Tensor:
    """Return an uncoalesced tensor, with rows that come twice."""
    rows = torch.randint(0, UNITS, (11,), generator=torch.Generator().manual_seed(50 + rank))
    indices = rows[None] if dims == 1 else torch.stack([rows, rows % WIDTH])
    values = _numbers(rank, dtype, (11, WIDTH)[: 3 - dims])
    return torch.sparse_coo_tensor(indices, values, (UNITS, WIDTH), check_invariants=False)


def summed(group: dist.ProcessGroup, scheme: str) -> list[str]:
    """Return differences from torch's sum of all ranks' numbers, and other faults of the results."""
    collective, wrong = zenc.load(scheme, group, deadline=60), []
    for dtype in INTEGERS:
        ranks = range(group.size())
        expected = sum(dense(rank, dtype) for rank in ranks)
        own, gaps = dense(group.rank(), dtype), dense(group.rank(), dtype).t()
        for name, given in (("dense", own), ("with gaps", gaps)):
            total = collective.all_reduce(given)
            if total is not given or not torch.equal(given if name == "dense" else given.t(), expected):
                wrong.append(f"{dtype} {name}")
        rows = collective.all_reduce(dense(group.rank(), dtype), rows=True, async_op=True).wait()
        twice = dense(group.rank(), dtype)
        works = [collective.all_reduce(twice, async_op=True) for _ in range(2)]
        if not torch.equal(rows, expected) or not torch.equal(works[1].wait(), expected * group.size()):
            wrong.append(f"{dtype} async")
        for dims in (1, 2):
            given = sparse(group.rank(), dtype, dims)
            total = collective.all_reduce(given)
            expected_rows = sum(sparse(rank, dtype, dims).to_dense() for rank in ranks)
            same = torch.equal(total.to_dense(), expected_rows) and total.dtype == dtype and total.is_coalesced()
            if not same or not torch.equal(total.indices(), collective.all_reduce(given.float()).indices()):
                wrong.append(f"{dtype} sparse {dims}")
        (table,) = collective.all_reduce_coalesced([sparse(group.rank(), dtype, 1)])
        if not torch.equal(table.to_dense(), sum(sparse(rank, dtype, 1).to_dense() for rank in ranks)):
            wrong.append(f"{dtype} coalesced")
    return wrong


def refused(group: dist.ProcessGroup) -> list[str]:
    """Return the ids of the errors for means, lossy schemes, other calls and booleans."""
    balanced, lossy = zenc.load("balanced", group, deadline=60), zenc.load("topk_a2a", group, deadline=60)
    calls = (
        lambda: balanced.all_reduce(torch.ones(3, dtype=torch.int32), "mean"),
        lambda: lossy.all_reduce(torch.ones(3, dtype=torch.int8), name="a"),
        lambda: balanced.reduce_scatter(torch.ones(3, dtype=torch.int32)),
        lambda: balanced.all_reduce(torch.ones(3, dtype=torch.bool)),
    )
    found = []
    for call in calls:
        try:
            call()
        except zenc.TensorError as error:
            found.append(error.diagnostics[0].id)
    return found


def of_two_dtypes(group: dist.ProcessGroup) -> str:
    """Return the id of the error where ranks sum integers of different dtypes with equal carriers."""
    try:
        dtype = torch.int8 if group.rank() else torch.uint8
        zenc.load("balanced", group, deadline=5).all_reduce(torch.ones(9, dtype=dtype))
    except zenc.SynchronisationError as error:
        return error.diagnostics[0].id
    return ""


JOBS = "tests.runtime.test_nan:"


@pytest.mark.parametrize("scheme", ["balanced", "holders", "dense_ring", "agsparse", "auto", "omnireduce", "sparcml"])
def test_integers_have_exact_sums(four, scheme):
    assert four.run(JOBS + "summed", scheme=scheme) == [[]] * 4


def test_what_has_no_exact_sum_is_refused(two):
    assert two.run(JOBS + "refused") == [["unsupported-dtype"] * 4] * 2


def test_integers_of_another_dtype_are_another_call():
    with Ranks(2) as ranks:
        assert "different-calls" in ranks.run(JOBS + "of_two_dtypes")


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_gpus_sum_integers_too(dtype):
    ranks = [each.collective for each in emulated_ranks(compile("balanced", ranks=3), 3)]
    drawn = partial(torch.randint, torch.iinfo(dtype).min, torch.iinfo(dtype).max, dtype=dtype)
    dense = [drawn((57, 2), generator=torch.Generator().manual_seed(rank)) for rank in range(3)]
    rows = [
        torch.sparse_coo_tensor(torch.arange(0, 57, 5)[None], each[::5].clone(), each.shape, check_invariants=False)
        for each in dense
    ]
    expected = [sum(each.to_dense() for each in given) for given in (dense, rows)]
    for given, whole in zip((dense, rows), expected, strict=True):
        assert all(torch.equal(found.to_dense(), whole) for found in run_all(ranks, given))
