"""Announced calls on emulated GPUs: bits of calls without, one wait of the host, and a right sum in any case."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

import zenc
from tests.runtime.test_announced import announced, ids_of, summed, wrong
from tests.runtime.test_holders import AGGREGATIONS, COMMUNICATIONS, WIDTHS, scheme
from tests.support.cases import DTYPES, KINDS, dense_tensor, same_bits, sparse_tensor
from tests.support.emulated_gpu import EmulatedRank, emulated_ranks
from tests.support.local import collectives, run_all

HOWS = ("right", "more", "fewer", "none", "all", "right", "right")


def ranks_of(size: int, text: str = "") -> list[EmulatedRank]:
    return emulated_ranks(zenc.compile_text(text or scheme(), ranks=size), size)


@pytest.mark.parametrize("number", range(12))
def test_sums_are_those_of_a_call_without(number):
    size = 1 + number % 4
    text = scheme(COMMUNICATIONS[number % len(COMMUNICATIONS)], AGGREGATIONS[number // 2 % len(AGGREGATIONS)])
    gpus, cpus = (
        [rank.collective for rank in ranks_of(size, text)],
        collectives(zenc.compile_text(text, ranks=size), size),
    )
    for turn, kind in enumerate(KINDS[number % 3 :: 3]):
        make, rows = (dense_tensor, True) if (number + turn) % 3 == 2 else (sparse_tensor, False)
        units, width, dtype = (1, 63, 300)[(number + turn) % 3], WIDTHS[(number + turn) % len(WIDTHS)], DTYPES[turn % 4]
        inputs = [make(kind, rank, size, units, width, dtype, number) for rank in range(size)]
        hows = ["right"] * size if turn == 0 else [HOWS[(number + turn + rank) % 7] for rank in range(size)]
        told = [wrong(ids_of(tensor), how, units) for tensor, how in zip(inputs, hows, strict=True)]
        right = all(set(i.tolist()) == set(ids_of(tensor).tolist()) for i, tensor in zip(told, inputs, strict=True))
        expected = run_all(cpus, [tensor.clone() for tensor in inputs], "mean", rows=rows)
        shape = inputs[0].shape
        found = summed(gpus, [tensor.clone() for tensor in inputs], announced(gpus, told, shape), op="mean", rows=rows)
        assert same_bits([*expected, *found]), (kind, hows)
        assert [rank.stats["made_again"] for rank in gpus] == [not right] * size


def test_an_announcement_for_several_calls():
    size = 3
    gpus = [rank.collective for rank in ranks_of(size)]
    inputs = [sparse_tensor("random", rank, size, 200, 7, torch.float32, 1) for rank in range(size)]
    expected = run_all(gpus, inputs)
    whole = [rank.stats["phases"] for rank in gpus]
    told = announced(gpus, [ids_of(tensor) for tensor in inputs], inputs[0].shape)
    first = summed(gpus, inputs, told)
    counted = [rank.stats["phases"] for rank in gpus]
    for before, after in zip(whole, counted, strict=True):
        for phase in ("push", "pull"):
            assert after[phase]["formats_sent"] == before[phase]["formats_sent"]
        assert list(after) == ["announce", "push", "pull"]
        assert after["announce"]["formats_sent"] == before["announce"]["formats_sent"]
    second = summed(gpus, inputs, told)
    assert same_bits([*expected, *first, *second]) and set(gpus[0].stats["phases"]) == {"push", "pull"}


def waits(ranks: list[EmulatedRank], call: Any) -> int:
    before = ranks[0].gpu.calls("wait")
    call()
    return ranks[0].gpu.calls("wait") - before


def test_the_host_waits_once():
    """A call of rows knows all sizes at its start, while whole calls wait twice more to learn them."""
    size = 4
    ranks = ranks_of(size)
    gpus = [rank.collective for rank in ranks]
    inputs = [sparse_tensor("random", rank, size, 200, 7, torch.float32, 1).coalesce() for rank in range(size)]
    told = announced(gpus, [ids_of(tensor) for tensor in inputs], inputs[0].shape)
    for _ in range(2):  # the first call asks for its memory piece by piece
        whole, after = waits(ranks, partial(run_all, gpus, inputs)), waits(ranks, partial(summed, gpus, inputs, told))
    assert (whole, after) == (3, 1)


def test_memory_of_an_announcement_is_given_back():
    (rank,) = ranks_of(1)
    released: list[int] = []
    rank.collective.all_reduce(gradient := torch.eye(5).to_sparse(1))
    library = rank.collective.backend_on(torch.device("cpu"))._loaded.library
    release = library.release_agreed
    library.release_agreed = lambda agreed: (released.append(agreed), release(agreed))
    told = rank.collective.announce(torch.arange(5), gradient.shape)
    assert same_bits([gradient.coalesce(), rank.collective.all_reduce(gradient, announced=told)]) and not released
    del told
    assert len(released) == 1
    library.release_agreed = release
