"""``benchmarks.lab.dense``: backward passes and training on a network; nothing is lost, and its page is its files."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks.convergence.characters import SIZES, Sizes, batches, loss_of, new_model, text, windows
from benchmarks.convergence.runs import MOMENTUM, RATE
from benchmarks.lab.dense import peers
from benchmarks.lab.dense.__main__ import parser, settings_of
from benchmarks.lab.dense.peers import Attached
from benchmarks.lab.dense.settings import TORCH, Backwards, CharacterSteps, Layer
from benchmarks.lab.dense.suite import ALL, BALANCED_TOP, FOLDER, PAGE, SCHEMES, with_tables
from benchmarks.lab.dense.worker import CHARACTERS, FILES
from benchmarks.lab.launch import launch
from benchmarks.lab.results import Row, Spread
from benchmarks.lab.settings import LabError, Run
from benchmarks.lab.suite.results import Result, load
from benchmarks.lab.training.report import means
from benchmarks.lab.training.settings import NO_SYNC

WORKER = "benchmarks.lab.dense.worker"


def test_settings_are_read_back():
    trained = settings_of(parser().parse_args(["--characters", "--network", "loopback", "--peers", NO_SYNC]))
    assert CharacterSteps.from_json(trained.to_json()) == trained and trained.workload == SIZES
    with pytest.raises(LabError, match="no-sync goes with --characters"):
        settings_of(parser().parse_args(["--network", "loopback", "--peers", NO_SYNC]))
    given = settings_of(parser().parse_args(["--ranks", "2", "--network", "loopback", "--rows", "9"]))
    assert Backwards.from_json(given.to_json()) == given
    assert given.peers == (*TORCH, "topk_a2a") and given.reference == "torch-dense"
    assert given.workload == Layer(9, 2000) and "9 x 2,000 float32" in given.title
    cut = ["--ranks", "2", "--network", "loopback", "--rows", "9", "--tensors"]
    assert settings_of(parser().parse_args([*cut, "3", "--peers", "torch-dense"])).workload.shape == (3, 2000)
    for wrong in (["3"], "take buckets"), (["2", "--peers", "torch-dense"], "can't be cut"):
        with pytest.raises(LabError, match=wrong[1]):
            settings_of(parser().parse_args([*cut, *wrong[0]]))


def test_calls_of_several_tensors_average_them_all_and_count_their_bytes():
    layer, schemes = Layer(80, 50, 4), ("torch-dense", "topk_a2a")
    ranks = launch(Backwards(2, "", 0, "", layer, schemes, "torch-dense", 2, 2, 2, 1), 120, (WORKER,))
    (dense, _), (top, _) = ([record["samples"][name] for record in ranks] for name in schemes)
    assert len(top) == 4 and all(sample["counted"] is None for sample in dense)
    assert len({tuple(sample["counted"]) for sample in top}) == 1 and top[0]["counted"][0] > 4 * 50 * 8 * 0.01


@pytest.mark.parametrize("lost", [0.0, 1.0])
def test_what_a_scheme_loses_is_found(monkeypatch, lost):
    class Handle:
        class collective:
            artifact = type("Artifact", (), {"plan": type("Plan", (), {"feedback": "residual"})})

            @staticmethod
            def residual(name: str) -> torch.Tensor:
                return torch.ones(2, 3)

    monkeypatch.setattr(peers.dist, "all_reduce", lambda tensor: None)
    monkeypatch.setattr(peers.dist, "get_world_size", lambda: 1)
    peer = Attached.__new__(Attached)
    peer.shape, peer.handle, peer.ddp = (2, 3), Handle, nn.Module()
    peer.given, peer.got = torch.full((2, 3), 5.0 + lost).double(), torch.full((2, 3), 4.0).double()
    if not lost:
        peer.check("top")
        return
    with pytest.raises(LabError, match="top loses gradients: 1 of a unit"):
        peer.check("top")


def losses_of_one_process(settings: CharacterSteps, steps: int) -> list[float]:
    """By step, with the batches of all ranks; the mean of their losses."""
    model, sizes = new_model(settings.workload, settings.seed), settings.workload
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    drawn = [batches(settings.seed, rank) for rank in range(settings.ranks)]
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        of_ranks = [windows(text(FILES).train, sizes.batch, sizes.context, each) for each in drawn]
        loss = torch.stack([loss_of(model, batch) for batch in of_ranks]).mean()
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return found


@pytest.mark.slow
def test_ways_of_training_have_the_losses_of_one_process():
    small = Sizes(context=4, width=8, hidden=64, narrow=48, batch=8)
    peers = ("torch-dense", "torch-powersgd", NO_SYNC, "topk_a2a", "qsgd")
    settings = CharacterSteps(2, "", 0, "", small, peers, "torch-dense", 2, 2, 2, 1)
    ranks = launch(settings, 120, (WORKER, CHARACTERS))
    losses = {name: means([rank["losses"][name] for rank in ranks]) for name in peers}
    expected = losses_of_one_process(settings, 7)
    assert losses["torch-dense"] == pytest.approx(expected[:6], rel=1e-5) and len(losses["qsgd"]) == 7
    assert losses["topk_a2a"][0] == pytest.approx(expected[0]) and losses["topk_a2a"][1:] != losses["torch-dense"][1:]
    assert losses["qsgd"] == pytest.approx(expected, rel=0.02)


def result(**seconds: float) -> Result:
    def row(took: float) -> Row:
        spread = Spread(took, took, took)
        return Row(3, spread, spread, None, None, 1000, 1000, 0.95, 0.1)

    run = Run(4, "100mbit", 1, "2mb", {}, tuple(seconds), "torch-dense", 3, 3, 2, 1)
    rows = {name: row(took) for name, took in seconds.items()}
    samples = {name: [took] * 3 for name, took in seconds.items()}
    return Result("dense-4", "python", "4 ranks", run, {"commit": "c"}, None, rows, samples, 1.0, 0.0)


def test_goals_are_met_or_missed():
    page = "<!-- results: written by the suite --><!-- end of results -->"
    measured = result(**{"torch-dense": 2.0, "topk_a2a": 1.0, BALANCED_TOP: 0.2})
    less = replace(measured, rows={name: replace(row, wire=0.9) for name, row in measured.rows.items()})
    found = with_tables(page, {"dense-4": measured, "tensors-4": less})
    assert "| `topk_a2a` | 1.9 | 2.00 | met | 0.95 | 0.90 | missed |" in found
    assert "| `balanced_top` | 20 | 10.00 | missed | 0.95 | 0.90 | missed |" in found
    assert "| `one_bit` | 12 |  | not measured |  |  | not measured |" in found


def test_share_of_a_step_that_is_communication():
    page = "<!-- results: written by the suite --><!-- end of results -->"
    trained = result(**{"torch-dense": 2.0, "qsgd": 0.8, NO_SYNC: 0.2})
    losses = {name: [4.0] * 15 + [3.0] * 5 for name in trained.rows}
    found = with_tables(page, {"steps-4": replace(trained, losses=losses)})
    assert "| `qsgd` | 0.001 | 800.0 | 800.0-800.0 | 2.50 | 0.95 | 0.75 | 4.00 | 3.00 |" in found
    assert "| `no-sync` | 0.001 | 200.0 | 200.0-200.0 | 10.00 | 0.95 |  |  |  |" in found


def test_the_page_is_that_of_the_files():
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page, load(FOLDER, ALL))
    assert all(set(SCHEMES) <= set(point.words) for point in ALL)
