"""Profiles from a few numbers, against the formulas of their models and drawn gradients."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz import tried
from zenc.errors import CostError
from zenc.gradients.index_sets import drawn, gradients
from zenc.gradients.profile_generators import common_core, random_subset, uniform, zipf
from zenc.gradients.spec import GradientSpec

UNITS, RANKS = 60_000, 8


def against(profile, load):
    """Compare densities of sums, holders, parts and blocks of ``profile`` with drawn gradients, up to chance."""
    draws = [drawn(replace(load, seed=seed), RANKS) for seed in range(4)]
    edges = np.linspace(0, UNITS, 5).astype(int)
    holders = np.mean([np.bincount(of.holders(), minlength=RANKS + 1) for of in draws], axis=0) / UNITS
    assert profile.holders(RANKS) == pytest.approx(holders, rel=0.03, abs=0.001)
    for k in (1, 2, 4, 8):
        held = np.array([gradients(UNITS, 1, "f32", list(of.held[:k])).holders() > 0 for of in draws])
        assert profile.union(k) == pytest.approx(held.mean(), rel=0.01)
        parts = [held[:, a:b].mean() for a, b in pairwise(edges)]
        assert profile.union_between(edges[:-1], edges[1:], k) == pytest.approx(parts, rel=0.03, abs=0.002)
        blocks = held.reshape(len(draws), -1, 16).any(axis=2)
        assert profile.blocks(k, 16) == pytest.approx(blocks.mean(), rel=0.03)


@pytest.mark.parametrize("density", [0.02, 0.3])
def test_uniform(density):
    profile = uniform(density, UNITS)
    assert profile.density == pytest.approx(density)
    against(profile, GradientSpec(UNITS, 1, "f32", density))


@pytest.mark.parametrize(("density", "exponent"), [(0.02, 1.05), (0.02, 0.5), (0.2, 2.0), (0.3, 1.0)])
def test_zipf(density, exponent):
    profile = zipf(density, exponent, UNITS)
    assert profile.width == 1 and profile.density == pytest.approx(density, rel=1e-6)
    against(profile, GradientSpec(UNITS, 1, "f32", density, zipf=exponent))


@pytest.mark.parametrize("overlap", [0.1, 0.6, 1.0])
def test_random_subset(overlap):
    """The densification gamma^k is (1 - (1 - q)^k) / q, scattered or not."""
    load = GradientSpec(UNITS, 1, "f32", 0.05, overlap=overlap)
    against(random_subset(0.05, overlap, UNITS, contiguous=True), load)
    scattered = random_subset(0.05, overlap, UNITS)
    k = np.arange(1, 20)
    assert scattered.densification(k) == pytest.approx((1 - (1 - overlap) ** k) / overlap)
    assert (scattered.overlap, scattered.skewness(8)) == (pytest.approx(overlap), pytest.approx(1))


def test_common_core():
    """The densification gamma^k is p + (1 - p) k while few units are held."""
    k = np.array([1, 2, 16, 64])
    assert common_core(1e-6, 0.3, 10**9).densification(k) == pytest.approx(0.3 + 0.7 * k, rel=1e-4)
    assert common_core(1e-6, 0.3, 10**9).overlap == pytest.approx(0.3, rel=1e-3)
    dense = common_core(0.5, 0.5, 100)
    assert dense.density == pytest.approx(0.5) and dense.union(1000) == pytest.approx(1)
    assert common_core(1.0, 1.0, 100).density == 1


@settings(max_examples=tried(40), deadline=None)
@given(units=st.integers(1, 3000), density=st.floats(0, 1), exponent=st.floats(0, 100))
def test_zipf_has_the_density_that_was_asked_for(units, density, exponent):
    profile = zipf(density, exponent, units)
    assert profile.density == pytest.approx(density, rel=1e-6, abs=1e-12)
    hot = profile.union_between(0, units / 2, 1) if units > 1 else profile.density
    assert hot >= density * (1 - 1e-6)


def common_core_half(density, units):
    return common_core(density, 0.5, units)


def test_other_numbers_are_checked():
    for overlap in (0.0, 0.05, 1.5, float("nan")):
        with pytest.raises(CostError, match="an overlap is the density to 1"):
            random_subset(0.1, overlap, 100)
    for core in (-1.0, 1.5, float("nan")):
        with pytest.raises(CostError, match="a core is 0 to 1"):
            common_core(0.1, core, 100)
    for exponent in (-1.0, 101.0, float("nan")):
        with pytest.raises(CostError, match="an exponent of Zipf's law"):
            zipf(0.1, exponent, 100)
    with pytest.raises(CostError, match="0 units"):
        zipf(0.1, 1.0, 0)
