"""The tables of hierarchical hashing: every unit in one place, by h0 alone, and parts as even as Theorem 2 says."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz import tried
from zenc.errors import TensorError
from zenc.scheme.model import HierarchicalHash
from zenc.wire.partitioning import part_sizes, parts_of_units

SEED = 0x5EED
MAPPING = HierarchicalHash(3, 2.0, 0.2, SEED)
KNOWN_PARTS = [[2, 1, 2, 0, 2, 0, 2, 1], [11, 10, 13, 3, 11, 3, 14, 7]]


def slots_of(kernels, at, geometry):
    units, out = np.arange(geometry.units), np.empty(geometry.units, np.int64)
    kernels.slots_of_units(geometry, at.address(units), len(units), at.address(out))
    return out


def units_of(kernels, at, geometry, slots):
    slots, out = np.ascontiguousarray(slots, np.int64), np.empty(len(slots), np.int64)
    kernels.units_of_slots(geometry, at.address(slots), len(slots), at.address(out))
    return out


@settings(max_examples=tried(200), deadline=None)
@given(units=st.integers(0, 3000), parts=st.integers(1, 200))
def test_every_unit_has_one_slot_by_rank_in_the_part_of_its_hash(hashing, at, units, parts):
    geometry = hashing.geometry(units, 1, parts)
    slots = slots_of(hashing, at, geometry)
    assert np.array_equal(units_of(hashing, at, geometry, slots), np.arange(units))
    expected = parts_of_units(MAPPING, np.arange(units, dtype=np.uint64), parts).astype(np.int64)
    step = max(geometry.part_slots, 1)
    assert np.array_equal(slots // step, expected)
    for part in range(parts):
        local = slots[expected == part] % step
        assert np.array_equal(local, np.arange(geometry.slots_of(part)))
    assert [geometry.slots_of(part) for part in range(parts)] == part_sizes(MAPPING, units, 1, parts)


def test_known_values_never_change():
    """Ranks with different builds of zenc must agree: a change here is a change of ZENC_ABI_VERSION."""
    found = [parts_of_units(MAPPING, np.arange(8, dtype=np.uint64), parts).tolist() for parts in (3, 16)]
    assert found == KNOWN_PARTS


def test_numbers_in_the_gap_behind_a_small_part_are_no_slots(hashing, at):
    geometry = hashing.geometry(1000, 1, 7)
    for part in range(7):
        gap = part * geometry.part_slots + geometry.slots_of(part)
        if geometry.slots_of(part) < geometry.part_slots:
            with pytest.raises(TensorError):
                units_of(hashing, at, geometry, np.array([gap]))


def test_tables_are_shared_while_they_are_in_use(hashing):
    first, second = hashing.geometry(5000, 1, 3), hashing.geometry(5000, 64, 3)
    assert first.tables is second.tables and first.tables is not hashing.geometry(5000, 1, 4).tables
    assert hashing.geometry(5001, 1, 3).tables is not first.tables
    del first, second
    gc.collect()
    assert (5000, 3) not in hashing._tables


def test_threads_that_ask_at_once_get_the_same_tables(hashing, at):
    with ThreadPoolExecutor(8) as pool:
        cuts = list(pool.map(lambda parts: hashing.geometry(300_000, 1, parts), [5, 6] * 8))
    assert len({id(geometry.tables) for geometry in cuts}) == 2
    for geometry in cuts[:2]:
        assert np.array_equal(units_of(hashing, at, geometry, slots_of(hashing, at, geometry)), np.arange(300_000))


def test_tensors_beyond_32_bits_are_refused(hashing, permuting):
    with pytest.raises(TensorError, match="hierarchical_hash") as raised:
        hashing.geometry(1 << 32, 1, 4)
    assert raised.value.diagnostics[0].id == "tensor-too-large"
    assert permuting.geometry(1 << 32, 1, 4).tables is None


def gradients(size):
    """Draw sets of units as gradients have them: skewed, regular, or both."""
    rng = np.random.default_rng(12)
    yield "everything", np.arange(size)
    yield "head", np.arange(size // 20)
    yield "tail", np.arange(size - size // 20, size)
    for stride in (2, 3, 64, 512):
        yield f"every {stride}", np.arange(0, size, stride)
    yield "powers of two and near", np.unique((1 << np.arange(17))[:, None] + np.arange(64))
    yield "blocks", np.unique((rng.zipf(1.3, 5000) % (size // 16))[:, None] * 16 + np.arange(16))
    yield "random", rng.permutation(size)[: size // 20]


def theorem_2(units, parts):
    """Return the most units of the fullest part, with a probability of at least 1 - 1
    parts (Bernstein's inequality).

    mean + t, where parts * exp(-t^2
    (2 (mean + t
    3))) = 1
    parts: mean + Theta(sqrt(units * log(parts)
    parts)).
    """
    mean, log = units / parts, 2 * np.log(parts)
    return mean + log / 3 + np.sqrt((log / 3) ** 2 + 2 * log * mean)


@pytest.mark.parametrize("parts", [2, 3, 16, 128])
def test_parts_are_as_even_as_theorem_2_says(parts):
    failures = []
    for seed in range(40):
        mapping = HierarchicalHash(3, 2.0, 0.2, seed)
        for _, units in gradients(200_000):
            counts = np.bincount(parts_of_units(mapping, units.astype(np.uint64), parts).astype(np.int64))
            failures.append(counts.max() > theorem_2(len(units), parts))
    assert np.mean(failures) <= 1 / parts


@pytest.mark.parametrize("parts", [2, 5, 16, 128])
def test_the_hash_has_no_bias(parts):
    """Chi-square of the units in each part, over gradients and seeds, is that of random functions."""
    scores = []
    for seed in range(40):
        mapping = HierarchicalHash(3, 2.0, 0.2, seed << 32)
        for _, units in gradients(200_000):
            counts = np.bincount(
                parts_of_units(mapping, units.astype(np.uint64), parts).astype(np.int64), minlength=parts
            )
            mean, freedom = len(units) / parts, parts - 1
            scores.append((((counts - mean) ** 2 / mean).sum() - freedom) / np.sqrt(2 * freedom))
    scores = np.array(scores)
    assert scores.max() < 12.0  # the upper tail of chi-square with one degree of freedom is long
    assert abs(scores.mean()) < 4 / np.sqrt(len(scores))
    assert 0.7 < scores.std() < 1.4


def test_other_seeds_are_other_functions():
    units = np.arange(100_000, dtype=np.uint64)
    chosen = [parts_of_units(HierarchicalHash(3, 2.0, 0.2, seed), units, 16) for seed in range(8)]
    for i, mine in enumerate(chosen):
        for other in chosen[:i]:
            assert (mine == other).mean() == pytest.approx(1 / 16, abs=0.005)
