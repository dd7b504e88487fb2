"""Summaries of choices: the minimised cost and the gain, without calls that only tried a candidate."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from zenc.runtime.call.layout import layout_of
from zenc.runtime.call.stats import CallStats, ChoiceReport
from zenc.scheme.model import Unit
from zenc.torch.records.summary import Totals, TrainingSummary, totals_from_json, totals_to_json


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
