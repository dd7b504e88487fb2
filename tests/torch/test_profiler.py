"""Profiles of a model in training, on real gloo processes: right counts, and unchanged training."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.ranks import Ranks, RanksFailed
from tests.torch.jobs import ROWS, STEPS, WIDTH, batch
from zenc.gradients.profile_fit import sample_ids
from zenc.gradients.profile_io import read_profiles

JOBS = "tests.torch.jobs:"


def holders(size, step, factor=1):
    """Return by row how many ranks look it up."""
    rows = [np.unique(batch(rank, step).numpy() * factor % ROWS) for rank in range(size)]
    return sum(np.isin(np.arange(ROWS), ids).astype(int) for ids in rows)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_all_ranks_count_what_is_there_and_train_as_without(four, size, tmp_path):
    path = tmp_path / "profiles.json"
    results = four.run(JOBS + "profiled", size=size, path=str(path))
    assert all(without == with_ for without, with_, _ in results)
    assert all(profiles == results[0][2] for _, _, profiles in results)
    saved = read_profiles(path)
    assert [profile.to_json() for profile in saved.values()] == results[0][2]
    assert set(saved) == {"words.weight", "bags.weight"}
    for name, factor in (("words.weight", 1), ("bags.weight", 7)):
        profile, sampled = saved[name], range(0, STEPS, 2)
        assert (profile.units, profile.width, profile.dtype, profile.ranks) == (ROWS, WIDTH, "f32", size)
        assert (profile.recorded.steps, profile.recorded.units) == (len(sampled), ROWS)
        counted = [holders(size, step, factor) for step in sampled]
        assert profile.density == pytest.approx(np.mean(counted) / size, rel=0.01)
        assert profile.union(size) == pytest.approx(np.mean([held > 0 for held in counted]), rel=0.04)
        assert (profile.recorded.bytes_busiest >= profile.recorded.bytes_mean > 0) == (size > 1)


def test_a_sample_stands_for_all(four, tmp_path):
    path = tmp_path / "profiles.json"
    four.run(JOBS + "profiled", path=str(path), sample=64)
    words = read_profiles(path)["words.weight"]
    ids = sample_ids(ROWS, 64)
    counted = [holders(4, step)[ids] for step in range(0, STEPS, 2)]
    assert words.recorded.units == 64
    assert words.density == pytest.approx(np.mean(counted) / 4, rel=0.01)


def test_dense_tables_are_counted_by_rows(four):
    (profile, *others) = four.run(JOBS + "profiled_dense")
    assert others == [profile] * 3
    assert (profile["units"], profile["width"]) == (ROWS, WIDTH)
    density = np.mean([sum(p * share for p, share in range_) for range_ in profile["ranges"]])
    assert density == pytest.approx(holders(4, 0).mean() / 4, rel=0.01)


@pytest.mark.parametrize("every", [[10, 20], [None, 10]], ids=str)
def test_ranks_that_would_sample_other_steps_are_told(four, every):
    with pytest.raises(RanksFailed) as caught:
        four.run(JOBS + "profiled_differently", size=2, every=every)
    assert len(caught.value.errors) == 2
    for error in caught.value.errors.values():
        assert "error[different-profilers]: the ranks would profile different steps" in str(error)
        assert "every 10, of 65536 units" in str(error)


def test_a_sample_that_a_rank_can_not_take_is_dropped_by_all(four):
    assert four.run(JOBS + "profiled_by_a_rank_that_fails", size=3) == [1, 1, 1]


def test_no_rank_waits_for_one_that_is_gone():
    with Ranks(3) as ranks, pytest.raises(RanksFailed) as caught:
        ranks.run(JOBS + "profiled_with_a_dead_rank", seconds=60)
    assert set(caught.value.errors) == {1}
    for text, steps in caught.value.results.values():
        assert "peer-lost" in text or "deadline" in text or "group-broken" in text
        assert steps in (4, 5), "the last step's count may have met the end"
