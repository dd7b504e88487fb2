"""Balanced by hierarchical hashing: sums equal to those of the permutation bit by bit, and even parts."""

import itertools

import pytest
import torch

import zenc
from tests.support.cases import (
    AGGREGATIONS,
    COMMUNICATIONS,
    DTYPES,
    FORMATS,
    KINDS,
    same_bits,
    scheme_text,
    sparse_tensor,
)
from tests.support.local import collectives, faults_of, ranks_of, run_all

JOBS = "tests.runtime.jobs:"
PATTERNS = list(itertools.product(COMMUNICATIONS, AGGREGATIONS))
CUT = "partition: parallelism balance: balanced by {}"
HASHED = CUT.format("hierarchical_hash(seed = 7)")
LISTED = CUT.format("hierarchical_hash(k = 1, r1 = 0, r2 = 0, seed = 7)")
PERMUTED = CUT.format("permutation(7)")


def of_cut(cut: str, push: str = "coo", pull: str = "bitmap", *, size: int) -> list[zenc.Collective]:
    return ranks_of(scheme_text("point_to_point", "incremental", cut, push, pull), size)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [1, 2, 5, 9])
def test_sums_are_those_of_the_permutation_bit_by_bit(dtype, size):
    """Point-to-point adds in the order of the ranks, whoever owns a unit; the memory changes no sum."""
    for turn, kind in enumerate(KINDS):
        inputs = [sparse_tensor(kind, rank, size, 97, 3, dtype, turn) for rank in range(size)]
        assert same_bits([run_all(of_cut(cut, size=size), inputs)[0] for cut in (PERMUTED, HASHED, LISTED)])


def test_more_ranks_than_units():
    for units in (1, 2, 3):
        for push, pull in zip(FORMATS, FORMATS[units:] + FORMATS[:units], strict=True):
            inputs = [sparse_tensor("everything", rank, 9, units, 2, torch.float32, units) for rank in range(9)]
            assert faults_of(of_cut(HASHED, push, pull, size=9), inputs) == []


def test_parts_of_a_skewed_gradient_are_even():
    """The first tenth has all units, and contiguous parts would give them to one rank."""
    ranks = of_cut(HASHED, size=8)
    ids = torch.arange(4000)[None]
    tensor = torch.sparse_coo_tensor(ids, torch.ones(4000, 1), (40_000, 1), check_invariants=False)
    run_all(ranks, [tensor] * 8)
    for rank in ranks:
        assert rank.stats["phases"]["push"]["imbalance"] < 1.2
        assert rank.stats["phases"]["pull"]["imbalance"] < 1.2


@pytest.mark.parametrize("size", [2, 4, 8])
def test_zen_sends_the_bytes_of_the_paper(size):
    """Each rank gets (n - 1) / n * (2 d + d_n + 1 / 32) * M bytes, for single float32 values of any skew."""
    units, n = 100_000, 3000
    ranks = collectives(zenc.compile("zen", ranks=size), size)
    inputs = []
    for rank in range(size):
        ids = torch.randperm(units // 2, generator=torch.Generator().manual_seed(rank))[:n]
        inputs.append(torch.sparse_coo_tensor(ids[None], torch.ones(n), (units,), check_invariants=False))
    run_all(ranks, inputs)
    for rank in ranks:
        density = rank.stats["density_out"]
        expected = (size - 1) / size * (2 * n / units + density + 1 / 32) * 4 * units
        assert rank.stats["bytes_received"] == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    "size", [pytest.param(size, marks=[] if size in (2, 6, 9) else pytest.mark.slow) for size in range(1, 10)]
)
def test_processes(nine, size):
    texts = []
    for turn, pattern in zip(range(size, size + 30, 5), PATTERNS, strict=True):
        formats = FORMATS[turn % len(FORMATS)], FORMATS[turn // len(FORMATS) % len(FORMATS)]
        texts.append(scheme_text(*pattern, HASHED, *formats, ("auto", "row", "element")[turn % 3]))
    results = nine.run(JOBS + "combinations", size=size, texts=texts, turn=size)
    assert all(result == results[0] for result in results)
