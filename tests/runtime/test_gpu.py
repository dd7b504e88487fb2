"""Collectives on GPUs, emulated: what they sum, count and refuse is what collectives on the CPU do, bit for bit."""

from __future__ import annotations

import pytest
import torch

import zenc
from tests.support.cases import KINDS, assert_same_bits, dense_tensor, sparse_tensor
from tests.support.emulated_gpu import EmulatedRank, emulated_ranks
from tests.support.local import collectives, run_all

SCHEMES = ("balanced", "dense_ring", "zen", "holders")


def reduced(ranks: list[EmulatedRank], inputs: list[torch.Tensor], op: str = "sum") -> list[torch.Tensor]:
    return run_all([rank.collective for rank in ranks], [tensor.clone() for tensor in inputs], op)


@pytest.mark.parametrize("size", [1, 3, 4])
@pytest.mark.parametrize("name", SCHEMES)
def test_sums_and_counts_are_those_of_the_cpu(name, size):
    artifact = zenc.compile(name, ranks=size)
    gpus, cpus = emulated_ranks(artifact, size), collectives(artifact, size)
    for turn, make in enumerate((sparse_tensor, dense_tensor)):
        for kind in KINDS:
            inputs = [make(kind, rank, size, 70, 3, torch.float32, turn) for rank in range(size)]
            expected = run_all(cpus, [tensor.clone() for tensor in inputs], "mean")
            assert_same_bits([*expected, *reduced(gpus, inputs, "mean")])
            for gpu, cpu in zip(gpus, cpus, strict=True):
                mine, theirs = gpu.collective.stats, cpu.stats
                same = ("units", "units_in", "units_out", "density_in", "density_out", "call")
                assert [mine[key] for key in same] == [theirs[key] for key in same]
                assert set(mine["phases"]) == set(theirs["phases"])
                for phase in mine["phases"]:
                    assert mine["phases"][phase]["imbalance"] == theirs["phases"][phase]["imbalance"]
                    sent = {wire: size for wire, size in theirs["phases"][phase]["formats_sent"].items() if size}
                    assert mine["phases"][phase]["formats_sent"] == sent


def test_a_dense_tensor_with_gaps_is_overwritten_in_place():
    artifact = zenc.compile("balanced", ranks=2)
    ranks = emulated_ranks(artifact, 2)
    wide = [torch.arange(24.0).reshape(4, 6) * (rank + 1) for rank in range(2)]
    views = [tensor[:, ::2] for tensor in wide]
    expected = views[0].clone() + views[1].clone()
    results = run_all([rank.collective for rank in ranks], views)
    for view, result in zip(views, results, strict=True):
        assert result is view and torch.equal(view, expected)


def test_a_call_that_goes_on_gives_a_future():
    artifact = zenc.compile("balanced", ranks=2)
    ranks = emulated_ranks(artifact, 2)
    inputs = [sparse_tensor("random", rank, 2, 70, 3, torch.float32, 1) for rank in range(2)]
    works = [rank.collective.all_reduce(tensor, async_op=True) for rank, tensor in zip(ranks, inputs, strict=True)]
    futures = [work.get_future() for work in works]
    assert_same_bits([*run_all(collectives(artifact, 2), inputs), *(future.wait() for future in futures)])


def test_no_memory_is_an_error_of_the_rank_that_has_none():
    artifact = zenc.compile("balanced", ranks=1)
    rank = emulated_ranks(artifact, 1)[0]
    tensor = sparse_tensor("random", 0, 1, 70, 3, torch.float32, 1)
    rank.gpu.left = 1
    with pytest.raises(zenc.TensorError) as caught:
        rank.collective.all_reduce(tensor)
    assert caught.value.diagnostics[0].id == "out-of-memory"
    rank.gpu.left = None
    assert torch.equal(rank.collective.all_reduce(tensor).to_dense(), tensor.to_dense()), "its state is whole"


def test_ranks_in_different_calls_are_told():
    artifact = zenc.compile("balanced", ranks=2)
    ranks = emulated_ranks(artifact, 2, deadline=20)
    with pytest.raises(zenc.SynchronisationError) as caught:
        reduced(ranks, [torch.ones(4, 3), torch.ones(5, 3)])
    assert caught.value.diagnostics[0].id == "different-calls"
    with pytest.raises(zenc.SynchronisationError) as later:
        ranks[0].collective.all_reduce(torch.ones(4, 3))
    assert later.value.diagnostics[0].id == "group-broken"
