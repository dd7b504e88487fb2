"""The slots that predictions are made with are those of the kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zenc.codegen.render import UnitInputs, render
from zenc.runtime.cpu.geometry import Geometry
from zenc.runtime.cpu.library import load
from zenc.scheme.model import Contiguous, Permutation
from zenc.wire.partitioning import slots_of_units


@pytest.mark.parametrize("seed", [0, 0x5EED, 2**64 - 1])
@pytest.mark.parametrize("units", [1, 2, 3, 9, 10, 1000, 65_537, 1_000_000, 2**33 + 5, 2**61])
def test_the_permutation_is_that_of_the_kernels(seed, units):
    kernels = load(render(UnitInputs("permutation", seed)))
    ids = np.unique(np.r_[0, units - 1, np.random.default_rng(1).integers(0, units, 1000)])
    slots = np.empty_like(ids)
    kernels.slots_of_units(Geometry(units, 1, 1), ids.ctypes.data, len(ids), slots.ctypes.data)
    assert np.array_equal(slots_of_units(Permutation(seed), units, ids), slots)


@settings(deadline=None)
@given(units=st.integers(1, 3000), seed=st.integers(0, 2**64 - 1))
def test_it_is_one_to_one(units, seed):
    ids = np.arange(units)
    assert np.array_equal(np.sort(slots_of_units(Permutation(seed), units, ids)), ids)
    assert np.array_equal(slots_of_units(Contiguous(), units, ids), ids)
