"""Slots, blocks and cuts of predictions are those of the kernels; parts are as even as docs/adr/0036-blocks.md says."""

from collections.abc import Iterator
from itertools import pairwise
from math import ceil, log, log2, sqrt

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zenc.codegen.render import render
from zenc.gradients.index_sets import drawn
from zenc.gradients.spec import GradientSpec
from zenc.plan.expressions import Ints
from zenc.runtime.cpu.library import load
from zenc.scheme.model import PERMUTED_BLOCKS, Contiguous, Permutation
from zenc.wire.constants import BLOCKS_OF_PART
from zenc.wire.cuts import LEAST_SHARE, ends_by_size, even_ends
from zenc.wire.formats import block_of
from zenc.wire.partitioning import cut, part_sizes, slots_of_units

BLOCKS = st.sampled_from((None, *PERMUTED_BLOCKS))


@pytest.mark.parametrize(("seed", "block"), [(7, None), (0x5EED, 64), (2**64 - 1, 16)])
@pytest.mark.parametrize("units", [1, 7, 8, 9, 130, 1000, 65_537, 1_000_000, 2**33 + 5, 2**61])
def test_slots_are_those_of_the_kernels(seed, block, units):
    mapping = Permutation(seed, block)
    kernels = load(render(Permutation), mapping)
    ids = np.unique(np.r_[0, units - 1, np.random.default_rng(1).integers(0, units, 1000)])
    for width, parts in ((1, 1), (1, 8), (1, 1000), (0, 3)):
        geometry, slots = kernels.geometry(units, width, parts), np.empty_like(ids)
        assert geometry.block == block_of(mapping, units, width, parts)
        assert [geometry.slots_of(part) for part in range(parts)] == part_sizes(mapping, units, width, parts)
        kernels.slots_of_units(geometry, ids.ctypes.data, len(ids), slots.ctypes.data)
        assert np.array_equal(slots_of_units(mapping, units, ids, geometry.block), slots)


@pytest.mark.parametrize("parts", [1, 2, 8, 9, 1000])
@pytest.mark.parametrize("block", PERMUTED_BLOCKS[1:])
def test_blocks_are_larger_from_a_number_of_elements_on(parts, block):
    mapping, enough = Permutation(7), block * parts * (parts - 1).bit_length() * BLOCKS_OF_PART
    assert block_of(mapping, enough, 1, parts) >= block
    assert parts == 1 or block_of(mapping, enough - 1, 1, parts) == block // 2


@settings(deadline=None)
@given(units=st.integers(1, 3000), parts=st.integers(1, 9), seed=st.integers(0, 2**64 - 1), block=BLOCKS)
def test_blocks_are_permuted_one_to_one_and_never_cut(units, parts, seed, block):
    mapping, ids = Permutation(seed, block), np.arange(units)
    found, kept = cut(mapping, units, 1, parts), block_of(mapping, units, 1, parts)
    slots = slots_of_units(mapping, units, ids, kept)
    assert np.array_equal(np.sort(slots), ids)
    assert np.array_equal(slots % kept, ids % kept)
    assert np.array_equal(found.part, np.repeat(found.part[::kept], kept)[:units])
    assert found.sizes.sum() == units and (found.sizes[: found.part.max()] % kept == 0).all()


@given(units=st.integers(1, 3000))
def test_contiguous_units_are_their_slots(units):
    assert np.array_equal(slots_of_units(Contiguous(), units, np.arange(units), 1), np.arange(units))


@st.composite
def measured(draw: st.DrawFn) -> tuple[tuple[int, ...], list[int]]:
    """Draw ends of up to nine parts, some of them empty, and their sizes."""
    units = draw(st.integers(0, 1 << 40))
    ends = sorted(draw(st.lists(st.integers(0, units), min_size=0, max_size=8)))
    sizes = draw(st.lists(st.integers(0, 1 << 40), min_size=len(ends) + 1, max_size=len(ends) + 1))
    return (*ends, units), sizes


@given(measured())
@example(((500, 1000), [0, 0]))
@example(((0, 0, 7), [9, 0, 0]))
def test_parts_stay_a_cut_and_none_is_longer_than_the_bound(of: tuple[tuple[int, ...], list[int]]) -> None:
    ends, sizes = of
    found = ends_by_size(ends, sizes)
    assert len(found) == len(ends) and found[-1] == ends[-1] and list(found) == sorted(found)
    longest = max(end - first for first, end in pairwise((0, *found)))
    assert longest * len(ends) <= (LEAST_SHARE + 1) * ends[-1] + 2 * len(ends)


def test_bytes_are_shared_evenly() -> None:
    ends = even_ends(1000, 4)
    assert ends == (250, 500, 750, 1000)
    assert ends_by_size(ends, [250, 250, 250, 250]) == ends
    assert ends_by_size(ends, [600, 200, 100, 100]) == (104, 208, 437, 1000)
    assert even_ends(5, 4) == (2, 4, 5, 5)


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
