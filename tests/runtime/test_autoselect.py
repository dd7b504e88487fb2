"""A scheme that chooses, on real ranks: the same choice on all, right sums, and changes with the gradient."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import zenc
from tests.support.ranks import Ranks, RanksFailed
from tests.support.shipped import plan_of_shipped
from zenc.gradients.profile_generators import uniform
from zenc.runtime.call.layout import layout_of
from zenc.runtime.choice import sampling
from zenc.runtime.choice.sampling import Probe, SparsityProbe
from zenc.scheme.model import Unit
from zenc.simulator.calibration import DEFAULTS, ESTIMATES, Calibration
from zenc.simulator.predict import predict

JOBS = "tests.runtime.jobs:"
BY_PREDICTION = "scheme mine { choose(every = 4, patience = 2, trials = 0) from [sparcml, dense_ring] }"
BY_TRIALS = "scheme mine { choose(every = 5, trials = 2) from [balanced, holders, sparcml, dense_ring] }"


def alike(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what all ranks found, which must be the same."""
    assert all(result == results[0] for result in results)
    return results[0]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_all_ranks_choose_alike(four: Ranks, size: int) -> None:
    found = alike(four.run(JOBS + "chosen", size=size, text=BY_TRIALS, densities=[0.01] * 16))
    decision = found["decisions"][0]  # a machine that stalls later leads to new trials
    assert decision["tensor"] == "table"
    assert decision["scheme"] == min(decision["measured"], key=decision["measured"].get)
    assert found["ran"][decision["call"] - 1] == decision["scheme"]
    assert found["ran"][0] == "balanced"
    assert decision["afterwards"] > 0


def test_it_follows_the_gradient(four: Ranks) -> None:
    """Gradients go from 0.1 % to all units and back, and prediction alone switches once each way."""
    regimes = [0.001] * 12 + [1.0] * 16 + [0.001] * 16
    found = alike(four.run(JOBS + "chosen", text=BY_PREDICTION, densities=regimes, width=64))
    schemes = [decision["scheme"] for decision in found["decisions"]]
    assert schemes == ["sparcml", "dense_ring", "sparcml"], found["decisions"]
    assert found["ran"][:12] == ["sparcml"] * 12, "few ranks, few bytes: recursive doubling"
    assert found["ran"][20:28] == ["dense_ring"] * 8
    assert found["ran"][-4:] == ["sparcml"] * 4


@pytest.mark.parametrize(("on_gpu", "assumed"), [(False, DEFAULTS), (True, ESTIMATES)])
def test_what_is_predicted_is_of_the_device_that_computes(
    on_gpu: bool, assumed: Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "allreduce_max", lambda among, predictions, purpose: predictions)
    plans, ranks = [plan_of_shipped("balanced"), plan_of_shipped("dense_ring")], 4
    everyone: Any = SimpleNamespace(size=ranks)
    looker = SparsityProbe("table", layout_of(torch.zeros(2000, 8), Unit.ROW), plans, everyone, on_gpu)
    found = looker.models(Probe(np.full(2000, ranks)))
    expected = [predict(plan, ranks, uniform(1.0, 2000, 8), None, assumed).seconds for plan in plans]
    assert [each.fixed + each.transfer for each in found] == pytest.approx(expected)


def test_a_candidate_that_one_rank_can_not_build(four: Ranks, tmp_path: Path) -> None:
    """Every rank learns of the candidate by name, and none waits for another."""
    text = "scheme mine { choose(trials = 1) from [balanced, sparcml] }"
    folder = zenc.compile_text(text).save(tmp_path / "mine")
    found = four.run(JOBS + "without_compiler", size=3, folder=str(folder), empty=str(tmp_path / "cache"))
    assert found[0] == ["balanced", "compiler-missing", "group-broken"]
    assert found[1] == found[2] == ["balanced", "peer-failed", "group-broken"]


def test_ranks_with_other_choices_are_told(four: Ranks) -> None:
    with pytest.raises(RanksFailed) as caught:
        four.run(JOBS + "other_choices", size=2)
    assert {error.diagnostics[0].id for error in caught.value.errors.values()} == {"different-schemes"}


@pytest.mark.parametrize("away", [0, 3])
def test_a_rank_that_stays_away_is_named_with_the_tensor_and_the_time(two: Ranks, away: int) -> None:
    """A missing rank is named in the first call, which is sampled, and in a trial, which the ranks begin together."""
    found = two.run(JOBS + "left_alone", calls=away)
    assert found[0].startswith("deadline: rank 0 waited ") and "s in vain for rank 1 to " in found[0]
    assert "table" in found[0]
