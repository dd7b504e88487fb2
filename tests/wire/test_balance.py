"""The parts of permuted single elements are as even as docs/adr/0036-blocks.md promises, however the elements lie."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log, log2, sqrt

import numpy as np
import pytest

from zenc.gradients.index_sets import drawn
from zenc.gradients.spec import GradientSpec
from zenc.plan.expressions import Ints
from zenc.scheme.model import PERMUTED_BLOCKS, Permutation
from zenc.wire.constants import BLOCKS_OF_PART
from zenc.wire.formats import block_of
from zenc.wire.partitioning import part_sizes, slots_of_units

KEYS = 30
EIGHTH = 0.125


def bound(elements: float, block: int, parts: int) -> float:
    """Return the bound of ``excess`` in the mean of all keys, as a share of the mean part."""
    mean = elements / block / parts
    spread = mean * (1 - 1 / parts)
    return (sqrt(2 * spread * log(parts)) + log(parts) / 3) / mean


def excess(units: int, parts: int, ids: Ints) -> float:
    """Return how much more than the mean the fullest part has of elements ``ids``, in the mean of KEYS keys."""
    found = []
    for seed in range(KEYS):
        mapping = Permutation(seed)
        block, size = block_of(mapping, units, 1, parts), part_sizes(mapping, units, 1, parts)[0]
        counts = np.bincount(slots_of_units(mapping, units, ids, block) // size, minlength=parts)
        found.append(counts.max() * parts / len(ids) - 1)
    return float(np.mean(found))


@pytest.mark.parametrize("parts", [2, 8, 9, 64, 1024])
def test_an_eighth_is_promised_where_blocks_are_larger_than_the_least(parts: int) -> None:
    units = PERMUTED_BLOCKS[1] * parts * ceil(log2(parts)) * BLOCKS_OF_PART
    block = block_of(Permutation(0), units, 1, parts)
    assert block == PERMUTED_BLOCKS[1] and bound(units / 100, block, parts) < EIGHTH


@pytest.mark.parametrize(("units", "parts"), [(1_000_000, 8), (4_000_000, 2), (4_000_000, 8), (16_000_000, 8)])
def test_whole_blocks_are_within_the_bound(units: int, parts: int) -> None:
    block = block_of(Permutation(0), units, 1, parts)
    ids = np.random.default_rng(1).choice(units // block, units // block // 100, replace=False) * block
    promised = bound(len(ids) * block, block, parts)
    assert 0.3 * promised < excess(units, parts, ids) < promised


def gradients(units: int) -> Iterator[tuple[str, Ints]]:
    """Draw single elements of gradients: rows by Zipf's law and in any order, ranges, strides, and at random."""
    rng, width = np.random.default_rng(2), 64
    for name, spec in (("zipf", {"zipf": 1.05}), ("rows", {})):
        (rows,) = drawn(GradientSpec(units // width, width, "f32", 0.01, **spec), 1).held
        yield name, (rows[:, None] * width + np.arange(width)).ravel()
    yield "head", np.arange(units // 100)
    yield "stride 7", np.arange(0, units, 7)
    yield "stride 512", np.arange(3, units, 512)
    yield "random", np.unique(rng.integers(0, units, units // 100))


@pytest.mark.slow
@pytest.mark.parametrize("parts", [2, 8])
def test_gradients_are_within_the_bound(parts: int) -> None:
    units = 4_000_000
    block = block_of(Permutation(0), units, 1, parts)
    found = {name: (excess(units, parts, ids), bound(len(ids), block, parts)) for name, ids in gradients(units)}
    assert all(seen < promised for seen, promised in found.values()), found
