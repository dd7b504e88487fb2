"""``benchmarks.lab.training``: lanes that train alike, and the report that holds them to it."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch

from benchmarks.lab.launch import launch
from benchmarks.lab.settings import LabError
from benchmarks.lab.training.__main__ import parser, training_of
from benchmarks.lab.training.lanes import Taken
from benchmarks.lab.training.report import Report, difference, report, table
from benchmarks.lab.training.settings import NO_SYNC, Training
from examples.language_model.batches import Batches
from examples.language_model.model import Sizes, new_model, optimisers

SIZES = Sizes(vocabulary=500, width=4, context=3, batch=20, samples=10)
TEXT = torch.arange(6000, dtype=torch.int32) * 7919 % 500
PEERS = ("holders", "ddp-dense", "ddp-sparse", NO_SYNC)


def training(**changes: object) -> Training:
    base = Training(2, "", 70_000, "2mb", SIZES, PEERS, "holders", 2, 1, 2, 1)
    return Training.from_json({**base.to_json(), **changes})


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Of two ranks over loopback."""
    words = tmp_path_factory.mktemp("training") / "words.npy"
    np.save(words, TEXT.numpy())
    records = launch(training(), 120, ("benchmarks.lab.training.worker", str(words)))
    return report(training(), {"text": "numbers"}, records)


@pytest.mark.slow
def test_all_lanes_have_the_same_losses(found):
    assert {name: len(losses) for name, losses in found.losses.items()} == {
        "holders": 4,
        "ddp-sparse": 4,
        "ddp-dense": 2,
        NO_SYNC: 4,
    }, "two steps to warm up, and one where the dense lane takes part in one round"
    assert found.apart < 1e-6
    assert len(set(found.losses["holders"])) == 4, "each step has a batch of its own"
    assert difference(found.losses[NO_SYNC], found.losses["holders"]) > 1e-6, "nothing is summed, so ranks part"
    assert found.losses[NO_SYNC][0] == pytest.approx(found.losses["holders"][0]), "from equal weights"
    assert found.chosen == {name: {} for name in PEERS}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # Adagrad's own
def test_training_is_that_of_one_process_with_the_batches_of_both_ranks(found):
    model = new_model(SIZES)
    batches = [Batches.of_rank(rank, TEXT, SIZES) for rank in range(2)]
    parts = optimisers(model)
    for of_lanes in found.losses["holders"]:
        drawn = [of_rank.next() for of_rank in batches]
        loss = sum(model(batch.before, batch.target, batch.negatives) for batch in drawn) / 2
        assert loss.item() == pytest.approx(of_lanes, rel=1e-5)
        loss.backward()
        for part in parts:
            part.step()
            part.zero_grad()


@pytest.mark.slow
def test_what_each_lane_did_is_told(found):
    rows = found.rows
    assert (rows["holders"].rounds, rows["ddp-sparse"].rounds, rows["ddp-dense"].rounds) == (2, 2, 1)
    assert rows["holders"].counted_sent and rows["ddp-sparse"].counted_sent is None
    assert rows["holders"].ratio.median == 1.0
    data = json.loads(json.dumps(found.to_json()))
    assert data["peers"]["holders"]["steps_per_second"] == 1 / rows["holders"].seconds.median
    assert len(data["samples"]["ddp-sparse"]) == 2 and len(data["samples"]["ddp-sparse"][0]) == 4
    assert Training.from_json(data["settings"]) == training()
    shown = table(found)
    assert shown.row_count == len(PEERS) and "2 ranks, loopback; language model: 500 words x 4" in str(shown.title)


def records(**losses: list[float]) -> list[dict[str, object]]:
    """Two ranks, the second of which has a loss of zero in every step."""
    times = {"round": 0, "started": 1.0, "ended": 2.0, "processor": 0.5, "interface": None, "counted": None}
    both = (losses, {name: [0.0] * len(of) for name, of in losses.items()})
    return [{"machine": {"cores": 2}, "samples": {name: [times] for name in of}, "losses": of} for of in both]


def test_a_lane_that_does_not_train_as_the_others_is_found():
    peers = {"peers": ("holders", "bad"), "reference": "holders"}
    assert report(training(**peers), {}, records(holders=[8.0, 6.0], bad=[8.0])).losses["holders"] == [4.0, 3.0]
    for bad in ([8.0, 6.001], [8.0, float("nan")]):
        with pytest.raises(LabError, match="bad does not train as holders does: its losses differ by"):
            report(training(**peers), {}, records(holders=[8.0, 6.0], bad=bad))


def test_losses_are_compared_by_step():
    assert difference([2.0, 1.0, 5.0], [2.0, 1.25]) == pytest.approx(0.2)
    assert np.isnan(difference([float("nan"), 1.0], [1.0, 1.0]))


def test_every_lane_takes_the_same_batches():
    taken = Taken(Batches.of_rank(0, TEXT, SIZES))
    early, late = iter(taken), iter(taken)
    ahead = [next(early) for _ in range(3)]
    assert all(next(late) is batch for batch in ahead)
    assert not torch.equal(ahead[0].target, ahead[1].target)


def test_options_become_settings():
    options = ["--network", "loopback", "--schemes", "balanced", "--peers", "ddp-sparse", "--batch", "64"]
    found = training_of(parser().parse_args(options))
    assert found.peers == ("balanced", "ddp-sparse") and found.reference == "balanced" and not found.rate
    assert found.workload == Sizes(batch=64)
    with pytest.raises(LabError, match=re.escape("nothing to compare")):
        training_of(parser().parse_args(["--network", "loopback", "--schemes", "--peers"]))
