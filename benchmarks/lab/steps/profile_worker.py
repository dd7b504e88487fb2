"""A rank's process in a dry run, which trains the character model by DDP itself, and prints its profile."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import zenc
from benchmarks.convergence.characters import text
from benchmarks.lab.dense.peers import CharacterStep
from benchmarks.lab.dense.settings import CharacterSteps
from benchmarks.lab.dense.worker import FILES
from benchmarks.lab.peers import Peer, rehearse
from benchmarks.lab.worker import work

STEPS = 24
"""Steps of the dry run, of which the first ones and each tenth are not timed."""


def observed(settings: CharacterSteps) -> dict[str, Any]:
    """Return ``profile``: the text of the model's profile."""
    peer = CharacterStep("torch-dense", settings, dist.get_rank(), text(FILES))
    return profiled(peer, peer.ddp)


def profiled(peer: Peer, ddp: DistributedDataParallel) -> dict[str, Any]:
    """Return ``profile``, the text of the profile of ``ddp``, after STEPS steps by ``peer``, which trains it."""
    handle = zenc.attach(ddp, dry_run=True)
    rehearse(peer, STEPS)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.json")
        handle.save(file)
        return {"profile": file.read_text(encoding="utf-8")}


if __name__ == "__main__":
    work(lambda given: observed(CharacterSteps.from_json(given)))
