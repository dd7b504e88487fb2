"""Integers: sums are torch's to the bit, wrapped ones too, dense and sparse, under lossless schemes."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.distributed as dist

import zenc
from tests.support.emulated_gpu import emulated_ranks
from tests.support.local import run_all
from tests.support.ranks import Ranks
from zenc.api import compile

DTYPES = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
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
    for dtype in DTYPES:
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


JOBS = "tests.runtime.test_integers:"


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
