"""The permutation: a bijection with an inverse, and as even as a random one."""

from __future__ import annotations

import numpy as np
import pytest

SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 10, 15, 16, 17, 31, 64, 97, 100, 101, 127, 128, 999, 4093, 4096, 65536, 65537, 100_000]
WIDTH = 0
"""Width of rows in a tensor of the greatest length; rows are permuted one by one."""
KNOWN_SMALL = [969, 63, 949, 465, 104, 624, 229, 867]
KNOWN_LARGE = [1094348813221, 472156219053, 156453642845]


def slots_of(kernels, at, units, size):
    units, out = np.ascontiguousarray(units, np.int64), np.empty(len(units), np.int64)
    kernels.slots_of_units(kernels.geometry(size, WIDTH, 1), at.address(units), len(units), at.address(out))
    return out


def units_of(kernels, at, slots, size):
    slots, out = np.ascontiguousarray(slots, np.int64), np.empty(len(slots), np.int64)
    kernels.units_of_slots(kernels.geometry(size, WIDTH, 1), at.address(slots), len(slots), at.address(out))
    return out


@pytest.mark.parametrize("size", SIZES)
def test_it_is_a_bijection_with_its_inverse(permuting, at, size):
    slots = slots_of(permuting, at, np.arange(size), size)
    assert np.array_equal(np.sort(slots), np.arange(size))
    assert np.array_equal(units_of(permuting, at, slots, size), np.arange(size))


@pytest.mark.parametrize(
    "size", [(1 << 31) - 1, 0xFFFF0000, 0xFFFF0001, 1 << 32, (1 << 40) + 12_345, 10**15, (1 << 61) - 1, (1 << 62) - 1]
)
def test_samples_of_huge_tensors_come_back(permuting, at, size):
    rng = np.random.default_rng(10)
    units = np.unique(np.concatenate([rng.integers(0, size, 20_000), [0, 1, size - 2, size - 1]]))
    slots = slots_of(permuting, at, units, size)
    assert slots.min() >= 0 and slots.max() < size
    assert len(np.unique(slots)) == len(units)
    assert np.array_equal(units_of(permuting, at, slots, size), units)


def test_known_values_never_change(permuting, at):
    """Ranks with different builds of zenc must agree: a change here is a change of ZENC_ABI_VERSION."""
    assert slots_of(permuting, at, np.arange(8), 1000).tolist() == KNOWN_SMALL
    assert slots_of(permuting, at, np.arange(3), 1 << 40).tolist() == KNOWN_LARGE


def gradients(size):
    """Draw sets of units as gradients have them: skewed, regular, or both."""
    rng = np.random.default_rng(11)
    ranks = np.arange(1, size + 1)
    yield "head", np.arange(size // 50)
    yield "tail", np.arange(size - size // 50, size)
    yield "middle", np.arange(size // 3, size // 3 + size // 50)
    for stride in (2, 3, 7, 64, 100, 512, 1000):
        yield f"every {stride}", np.arange(0, size, stride)
    yield "powers of two and near", np.unique(np.concatenate([(1 << np.arange(17))[:, None] + np.arange(64)]))
    yield "columns of the grid", np.arange(0, size, int(np.ceil(np.sqrt(size))))
    yield "zipf", np.unique(rng.choice(size, 20_000, p=(1 / ranks) / (1 / ranks).sum()))
    yield "zipf with blocks", np.unique((rng.zipf(1.3, 5000) % (size // 16))[:, None] * 16 + np.arange(16))
    yield "random", rng.permutation(size)[: size // 50]


@pytest.mark.parametrize("parts", [2, 4, 16, 128])
def test_parts_are_as_even_as_after_a_random_permutation(permuting, at, parts):
    """Chi-square of the units in each part, over gradients and keys (they depend on the size), is standardised."""
    scores = []
    for size in range(200_000, 200_008):
        for _, units in gradients(size):
            units = units[units < size]
            counts = np.bincount(slots_of(permuting, at, units, size) // -(-size // parts), minlength=parts)
            mean, freedom = len(units) / parts, parts - 1
            spread = 1 - len(units) / size  # drawing without replacement
            chi2 = ((counts - mean) ** 2 / mean).sum() / spread
            scores.append((chi2 - freedom) / np.sqrt(2 * freedom))
    scores = np.array(scores)
    assert scores.max() < 9.0  # the upper tail of chi-square with one degree of freedom is long
    assert abs(scores.mean()) < 4 / np.sqrt(len(scores))


def test_another_seed_is_another_permutation(permuting, kernels_of, at):
    """Two permutations are random to each other: about one unit in all stays where it was."""
    mine = slots_of(permuting, at, np.arange(10_000), 10_000)
    theirs = slots_of(kernels_of("another permutation"), at, np.arange(10_000), 10_000)
    assert (mine == theirs).sum() < 10


@pytest.mark.parametrize("unit", [0, 1, 17, 49])
def test_a_unit_lands_anywhere_under_other_keys(permuting, at, unit):
    """Tensors of other sizes have other keys: the place of one unit, as a fraction, is evenly spread over them."""
    offsets = [slots_of(permuting, at, np.array([unit]), size)[0] / size for size in range(1000, 2000)]
    counts = np.histogram(offsets, 10, (0, 1))[0]
    assert ((counts - 100.0) ** 2 / 100).sum() < 40
