"""Values that are zero or not finite: no unit is left out because of them, and any NaN is one, on CPUs and GPUs."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
import torch

import zenc
from tests.support.cases import DTYPES, FILLING, FORMATS, dense_tensor, same_bits, scheme_text, tiered_text, wrong_sums
from tests.support.emulated import Emulated
from tests.support.emulated_gpu import emulated_ranks
from tests.support.local import collectives, run_all
from zenc.codegen.artifact import Artifact

BITS = {torch.float32: torch.int32, torch.float64: torch.int64, torch.float16: torch.int16, torch.bfloat16: torch.int16}
MANTISSA = {torch.float32: 23, torch.float64: 52, torch.float16: 10, torch.bfloat16: 7}
CUT = "partition: parallelism balance: imbalanced"
CODES = (
    "f16",
    "bf16",
    "int(8)",
    "fp8",
    "levels(4)",
    "sign",
    "vote",
    "onebit",
    "ternary",
    *("fixed(8)", "fixed(8) by asc"),
)


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
