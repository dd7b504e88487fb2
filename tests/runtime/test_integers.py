"""Integers: sums are torch's to the bit, wrapped ones too, dense and sparse, under lossless schemes."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from tests.support.emulated_gpu import emulated_ranks
from tests.support.local import run_all
from tests.support.ranks import Ranks
from zenc.api import compile

JOBS = "tests.runtime.integer_jobs:"


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
