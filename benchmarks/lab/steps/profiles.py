"""Profiles of models by dry runs on the lab's hosts, from which steps are predicted.

As a rank's process in a dry run this module trains a model by DDP itself, and prints its profile. It is the character
model, or, with a file of word ids as an argument, the word model, with sparse tables.
"""

import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import zenc
from benchmarks.convergence.characters import text
from benchmarks.lab.dense.peers import FILES, CharacterStep
from benchmarks.lab.dense.settings import CharacterSteps
from benchmarks.lab.launch import launch
from benchmarks.lab.peers import Peer, rehearse
from benchmarks.lab.settings import DDP
from benchmarks.lab.training.report import Training
from benchmarks.lab.training.worker import lanes
from benchmarks.lab.worker import work
from benchmarks.pages import ROOT
from examples.language_model import corpus
from examples.language_model.model import Sizes
from zenc.simulator.training.model_profile import ModelProfile, read_model_profile

WORKER = "benchmarks.lab.steps.profiles"
LIMIT = 300.0
"""Seconds of a dry run, at most."""
STEPS = 24
"""Steps of the dry run, of which the first ones and each tenth are not timed."""


def observed(settings: CharacterSteps) -> dict[str, Any]:
    """Return ``profile``: the text of the model's profile."""
    peer = CharacterStep("torch-dense", settings, dist.get_rank(), text(FILES))
    return profiled(peer, peer.ddp)


def observed_words(settings: Training) -> dict[str, Any]:
    warnings.filterwarnings("ignore", message="Sparse invariant checks")  # Adagrad's own
    text = torch.from_numpy(np.load(sys.argv[1]))
    (lane,) = lanes(DDP[1:], dist.get_rank(), text, settings.workload).values()
    return profiled(lane, lane.ddp)


def profiled(peer: Peer, ddp: DistributedDataParallel) -> dict[str, Any]:
    """Return ``profile``, the text of the profile of ``ddp``, after STEPS steps by ``peer``, which trains it."""
    handle = zenc.attach(ddp, dry_run=True)
    rehearse(peer, STEPS)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.json")
        handle.save(file)
        return {"profile": file.read_text(encoding="utf-8")}


def file_of(ranks: int) -> Path:
    return ROOT / "benchmarks" / "lab" / "models" / f"words-{ranks}.json"


@cache
def word_model(ranks: int) -> ModelProfile:
    return read_model_profile(file_of(ranks))


def measure_words(ranks: int) -> None:
    """Write the profile of a dry run among ``ranks`` hosts, with the rows of its tables that each of them holds."""
    text = corpus.read()
    run = Training(ranks, "100mbit", 70_000, "2mb", Sizes(vocabulary=text.vocabulary), (), "", 1, 1, 0, 1)
    with tempfile.TemporaryDirectory() as folder:
        words = Path(folder, "words.npy")
        np.save(words, text.train.numpy())
        record = launch(run, LIMIT, (WORKER, str(words)))[0]
    file_of(ranks).parent.mkdir(exist_ok=True)
    file_of(ranks).write_text(record["profile"], encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(lambda given: observed_words(Training.from_json(given)))
    else:
        work(lambda given: observed(CharacterSteps.from_json(given)))
