"""A single NaN: results of values that are not finite have the same bits on every device."""

from __future__ import annotations

from functools import cache

import pytest
import torch

import zenc
from tests.support.cases import DTYPES, FORMATS, scheme_text
from tests.support.emulated import Emulated
from tests.support.emulated_gpu import emulated_ranks
from tests.support.local import collectives, run_all

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
