"""A rank's process in a dry run, which trains a model by DDP itself, and prints its profile.

It is the character model, or, with a file of word ids as an argument, the word model, with sparse tables.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import zenc
from benchmarks.convergence.characters import text
from benchmarks.lab.dense.peers import CharacterStep
from benchmarks.lab.dense.settings import CharacterSteps
from benchmarks.lab.dense.worker import FILES
from benchmarks.lab.peers import Peer, rehearse
from benchmarks.lab.training.settings import DDP, Training
from benchmarks.lab.training.worker import lanes
from benchmarks.lab.worker import work

STEPS = 24
"""Steps of the dry run, of which the first ones and each tenth are not timed."""


def observed(settings: CharacterSteps) -> dict[str, Any]:
    """Return ``profile``: the text of the model's profile."""
    peer = CharacterStep("torch-dense", settings, dist.get_rank(), text(FILES))
    return profiled(peer, peer.ddp)


def observed_words(settings: Training) -> dict[str, Any]:
    """Return ``profile``: that of the word model."""
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


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(lambda given: observed_words(Training.from_json(given)))
    else:
        work(lambda given: observed(CharacterSteps.from_json(given)))
