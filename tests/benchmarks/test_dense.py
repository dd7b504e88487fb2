"""``benchmarks.lab.dense``: backward passes and training over a network lose nothing; the page matches the files."""

from __future__ import annotations

import pytest
import torch

from benchmarks.convergence.characters import Sizes, batches, loss_of, new_model, text, windows
from benchmarks.convergence.runs import MOMENTUM, RATE
from benchmarks.lab.dense.settings import Backwards, CharacterSteps, Layer
from benchmarks.lab.dense.worker import CHARACTERS, FILES
from benchmarks.lab.launch import launch
from benchmarks.lab.training.report import means
from benchmarks.lab.training.settings import NO_SYNC

WORKER = "benchmarks.lab.dense.worker"


@pytest.mark.slow
def test_calls_of_several_tensors_average_them_all_and_count_their_bytes():
    layer, schemes = Layer(80, 50, 4), ("torch-dense", "topk_a2a")
    ranks = launch(Backwards(2, "", 0, "", layer, schemes, "torch-dense", 2, 2, 2, 1), 120, (WORKER,))
    (dense, _), (top, _) = ([record["samples"][name] for record in ranks] for name in schemes)
    assert len(top) == 4 and all(sample["counted"] is None for sample in dense)
    assert len({tuple(sample["counted"]) for sample in top}) == 1 and top[0]["counted"][0] > 4 * 50 * 8 * 0.01


def losses_of_one_process(settings: CharacterSteps, steps: int) -> list[float]:
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
