"""Slots and blocks of predictions are those of the kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zenc.codegen.render import render
from zenc.runtime.cpu.library import load
from zenc.scheme.model import PERMUTED_BLOCKS, Contiguous, Permutation
from zenc.wire.constants import BLOCKS_OF_PART
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
