"""A sample of the units: even, the same everywhere, and representative."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zenc.errors import CostError
from zenc.gradients.index_sets import drawn
from zenc.gradients.profile_fit import HolderCounts, sample_ids
from zenc.gradients.profile_generators import zipf
from zenc.gradients.spec import GradientSpec


@settings(deadline=None)
@given(units=st.integers(1, 1 << 61), most=st.integers(1, 500))
def test_every_neighbourhood_has_one(units, most):
    ids = sample_ids(units, most)
    assert len(ids) == min(units, most) and (np.diff(ids) >= 0).all() and 0 <= ids[0] <= ids[-1] < units
    if most < units < 1 << 50:
        assert (np.abs(ids - np.arange(most) * (units / most)) <= units / most + 1).all()


def test_they_hit_no_pattern():
    """The sample holds half of every second unit, whatever the distance of its neighbourhoods."""
    for units in (1 << 17, 1 << 18, 300_000):
        assert np.mean(sample_ids(units, 1 << 14) % 2) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("units", [5_000, 200_000])
def test_a_few_steps_show_more_ranks_than_there_were(units):
    """A sample of 4,096 units from 4 ranks in 12 steps gives d_k for 48 ranks within 4 %."""
    truth, tally = zipf(0.02, 1.05, units), HolderCounts("words", units, 8, "f32", 4, 4096)
    for step in range(12):
        held = drawn(GradientSpec(units, 8, "f32", 0.02, zipf=1.05, seed=step), 4).holders()
        tally.add(held[tally.ids], np.array([100, 200, 300, 400]))
    profile = tally.profile()
    assert (profile.name, profile.units, profile.width, profile.ranks) == ("words", units, 8, 4)
    assert (profile.recorded.bytes_mean, profile.recorded.bytes_busiest) == (250, 400)
    assert profile.recorded.misfit < 0.01
    k = np.array([1, 2, 4, 12, 48])
    assert profile.union(k) == pytest.approx(truth.union(k), rel=0.04)
    assert profile.skewness(4) == pytest.approx(truth.skewness(4), rel=0.08)


def test_steps_are_no_ranks_where_ranks_share_what_a_step_draws():
    """Ranks share negative samples that change with every step: d_k for up to 4 ranks is as counted."""
    units, tally, sums = 5_000, HolderCounts("negatives", 5_000, 8, "f32", 4, 5_000), []
    for step in range(8):
        random = np.random.default_rng(step)
        shared, own = random.random(units) < 0.05, random.random((4, units)) < 0.02
        held = own | shared
        sums.append([held[:k].any(axis=0).mean() for k in (1, 2, 3, 4)])
        tally.add(held.sum(axis=0), np.zeros(4, dtype=np.int64))
    profile = tally.profile()
    assert profile.recorded.misfit < 0.01
    assert profile.union([1, 2, 3, 4]) == pytest.approx(np.mean(sums, axis=0), rel=0.02)


def test_a_profile_takes_a_step():
    with pytest.raises(CostError, match="bad-profile"):
        HolderCounts("none", 100, 1, "f32", 3, 50).profile()
