"""Collectives balanced by hierarchical hashing: exact sums, equal to those of the permutation bit by bit."""

import itertools
from functools import lru_cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import zenc
from tests.support.cases import (
    AGGREGATIONS,
    COMMUNICATIONS,
    DTYPES,
    FILLING,
    FORMATS,
    KINDS,
    dense_tensor,
    same_bits,
    same_units,
    scheme_text,
    sparse_tensor,
    wrong_sums,
)
from tests.support.fuzz import tried
from tests.support.local import collectives, run_all

JOBS = "tests.runtime.jobs:"
PATTERNS = list(itertools.product(COMMUNICATIONS, AGGREGATIONS))
CUT = "partition: parallelism balance: balanced by {}"
HASHED = CUT.format("hierarchical_hash(seed = 7)")
LISTED = CUT.format("hierarchical_hash(k = 1, r1 = 0, r2 = 0, seed = 7)")
PERMUTED = CUT.format("permutation(7)")


@lru_cache(maxsize=32)
def ranks_of(cut: str, pattern: tuple[str, str], push: str, pull: str, unit: str, size: int) -> list[zenc.Collective]:
    return collectives(zenc.compile_text(scheme_text(*pattern, cut, push, pull, unit), ranks=size), size)


@pytest.mark.one_in(15)
@pytest.mark.parametrize("third", [0, *(pytest.param(other, marks=pytest.mark.slow) for other in (1, 2))])
@pytest.mark.parametrize("pattern", PATTERNS, ids="-".join)
@pytest.mark.parametrize("size", range(1, 10))
def test_every_pattern_and_kind_of_input(pattern, size, third):
    """Formats, dtypes, widths and numbers of units rotate with the kinds of input."""
    turn = PATTERNS.index(pattern) * 9 + size + 3 * third
    for kind in KINDS[(turn + third) % 3 :: 3]:
        push, pull = FORMATS[turn % len(FORMATS)], FORMATS[turn // len(FORMATS) % len(FORMATS)]
        units, width, dtype = (1, 2, 7, 64, 65, 257)[turn % 6], (1, 3, 64)[turn % 3], DTYPES[turn % 4]
        ranks = ranks_of(HASHED, pattern, push, pull, "auto", size)
        inputs = [sparse_tensor(kind, rank, size, units, width, dtype, turn) for rank in range(size)]
        results = run_all(ranks, inputs)
        assert wrong_sums(results, inputs) == []
        assert same_bits([results[0], *run_all(ranks, inputs)])
        if push not in FILLING and pull not in FILLING:
            assert same_units(results, inputs)
        turn += 1


@settings(max_examples=tried(60), deadline=None)
@given(
    pattern=st.sampled_from(PATTERNS),
    size=st.integers(1, 9),
    units=st.integers(1, 400),
    width=st.integers(0, 70),
    dtype=st.sampled_from(DTYPES),
    kinds=st.lists(st.sampled_from(KINDS), min_size=9, max_size=9),
    formats=st.tuples(st.sampled_from(FORMATS), st.sampled_from(FORMATS)),
    unit=st.sampled_from(["auto", "row", "element"]),
    op=st.sampled_from(["sum", "mean"]),
    dense=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_input_on_any_rank(pattern, size, units, width, dtype, kinds, formats, unit, op, dense, seed):
    make = dense_tensor if dense else sparse_tensor
    inputs = [make(kinds[rank], rank, size, units, width, dtype, seed) for rank in range(size)]
    results = run_all(ranks_of(HASHED, pattern, *formats, unit, size), [tensor.clone() for tensor in inputs], op)
    assert wrong_sums(results, inputs, divisor=size if op == "mean" else 1) == []


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [1, 2, 5, 9])
def test_sums_are_those_of_the_permutation_bit_by_bit(dtype, size):
    """Point-to-point adds in the order of the ranks, whoever owns a unit; the memory changes no sum."""
    for turn, kind in enumerate(KINDS):
        inputs = [sparse_tensor(kind, rank, size, 97, 3, dtype, turn) for rank in range(size)]
        found = [
            run_all(ranks_of(cut, ("point_to_point", "incremental"), "coo", "bitmap", "auto", size), inputs)[0]
            for cut in (PERMUTED, HASHED, LISTED)
        ]
        assert same_bits(found)


def test_more_ranks_than_units():
    for units in (1, 2, 3):
        for push, pull in zip(FORMATS, FORMATS[units:] + FORMATS[:units], strict=True):
            ranks = ranks_of(HASHED, ("point_to_point", "incremental"), push, pull, "auto", 9)
            inputs = [sparse_tensor("everything", rank, 9, units, 2, torch.float32, units) for rank in range(9)]
            assert wrong_sums(run_all(ranks, inputs), inputs) == []


def test_parts_of_a_skewed_gradient_are_even():
    """The first tenth has all units, and contiguous parts would give them to one rank."""
    ranks = ranks_of(HASHED, ("point_to_point", "incremental"), "coo", "bitmap", "auto", 8)
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
    kinds, turns = len(FORMATS), [size + 5 * index for index in range(len(PATTERNS))]
    texts = [
        scheme_text(
            *pattern,
            HASHED,
            FORMATS[turn % kinds],
            FORMATS[turn // kinds % kinds],
            ("auto", "row", "element")[turn % 3],
        )
        for pattern, turn in zip(PATTERNS, turns, strict=True)
    ]
    results = nine.run(JOBS + "combinations", size=size, texts=texts, turn=size)
    assert all(result == results[0] for result in results)
