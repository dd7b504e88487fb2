"""Clipping agrees with torch's; summaries of choices tell the least cost without calls that only tried a candidate."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import zenc
from zenc.runtime.call.layout import layout_of
from zenc.runtime.call.stats import CallStats, ChoiceReport
from zenc.scheme.model import Unit
from zenc.torch.records.summary import Totals, TrainingSummary, totals_from_json, totals_to_json


def parameters(sparse: bool) -> list[torch.nn.Parameter]:
    torch.manual_seed(3)
    table, layer = torch.nn.Embedding(20, 5, sparse=sparse), torch.nn.Linear(5, 2)
    ids = torch.tensor([3, 3, 7, 1, 3])
    (layer(table(ids)) ** 2).sum().backward()
    return [*table.parameters(), *layer.parameters(), torch.nn.Parameter(torch.zeros(2))]


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.5, float("inf")])
@pytest.mark.parametrize("most", [0.1, 1e6])
def test_as_torch_clips_dense_gradients(norm, most):
    ours, theirs = parameters(sparse=True), parameters(sparse=False)
    total = zenc.clip_grad_norm_(iter(ours), most, norm)
    expected = torch.nn.utils.clip_grad_norm_(theirs, most, norm)
    torch.testing.assert_close(total, expected)
    for mine, other in zip(ours[:-1], theirs[:-1], strict=True):
        torch.testing.assert_close(mine.grad.to_dense(), other.grad)


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
