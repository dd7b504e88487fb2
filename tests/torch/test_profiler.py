"""Profiles of a model in training change nothing, clipping agrees with that of torch; summaries of choices."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import zenc
from tests.support.ranks import Ranks, RanksFailed
from tests.torch.jobs import ROWS, STEPS, WIDTH, batch
from zenc.gradients.profile_fit import sample_ids
from zenc.gradients.profile_io import read_profiles
from zenc.runtime.call.layout import layout_of
from zenc.runtime.call.stats import CallStats, ChoiceReport
from zenc.scheme.model import Unit
from zenc.torch.records.summary import Totals, TrainingSummary, totals_from_json, totals_to_json

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


def parameters(sparse: bool) -> list[torch.nn.Parameter]:
    torch.manual_seed(3)
    table, layer = torch.nn.Embedding(20, 5, sparse=sparse), torch.nn.Linear(5, 2)
    ids = torch.tensor([3, 3, 7, 1, 3])
    (layer(table(ids)) ** 2).sum().backward()
    short = torch.nn.Parameter(torch.linspace(-3, 3, 50, dtype=torch.bfloat16))
    short.grad = short.detach().clone()
    return [*table.parameters(), *layer.parameters(), short, torch.nn.Parameter(torch.zeros(2))]


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.5, float("inf")])
@pytest.mark.parametrize("most", [0.1, 1e6])
def test_as_torch_clips_dense_gradients(norm, most):
    ours, theirs = parameters(sparse=True), parameters(sparse=False)
    total = zenc.clip_grad_norm_(iter(ours), most, norm)
    expected = torch.nn.utils.clip_grad_norm_(theirs, most, norm)
    torch.testing.assert_close(total, expected)
    for mine, other in zip(ours[:-1], theirs[:-1], strict=True):
        torch.testing.assert_close(mine.grad.to_dense().float(), other.grad.float())


def test_nothing_to_clip():
    assert zenc.clip_grad_norm_(torch.nn.Parameter(torch.zeros(2)), 1.0) == 0
    empty = torch.nn.Parameter(torch.zeros(4, 2))
    empty.grad = torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.long), torch.zeros(0, 2), (4, 2))
    assert zenc.clip_grad_norm_([empty], 1.0, float("inf")) == 0


def test_a_norm_that_is_not_finite():
    broken = torch.nn.Parameter(torch.zeros(2))
    broken.grad = torch.tensor([1.0, float("nan")])
    with pytest.raises(zenc.TensorError, match="nonfinite-norm"):
        zenc.clip_grad_norm_(broken, 1.0, error_if_nonfinite=True)


def call(seconds: float, first: float | None, trial: bool, plain: CallStats) -> CallStats:
    choice = ChoiceReport(scheme="balanced", seconds_expected=seconds, trial=trial, seconds_of_first=first)
    return replace(plain, seconds=seconds, choice=choice)


def test_a_choice_says_what_it_gains_without_its_trials(plain: CallStats) -> None:
    totals = Totals()
    for each in (call(5.0, 3.0, True, plain), call(1.0, 3.0, False, plain), call(2.0, 3.0, False, plain)):
        totals.add(each)
    assert (totals.calls, totals.trials, totals.seconds, totals.gained) == (2, 1, 3.0, 3.0)
    assert totals_from_json(totals_to_json({"w": totals}))["w"] == totals
    text = str(TrainingSummary("auto", 2, {0: {"w": totals}}))
    assert "chosen for the least seconds, not bytes: 3 s less than the first candidate would have taken" in text
    assert "left out: 1 call that tried candidates" in text


def test_nothing_is_said_where_nothing_is_chosen(plain: CallStats) -> None:
    totals = Totals()
    totals.add(plain)
    assert "first candidate" not in str(TrainingSummary("balanced", 2, {0: {"w": totals}}))


@pytest.fixture
def plain() -> CallStats:
    return CallStats(1, layout_of(torch.zeros(8, 4), Unit.ROW), 2, [4], [4], {}, 1.0, 0.1, 0.1)
