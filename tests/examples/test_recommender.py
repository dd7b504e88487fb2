"""The recommender trains as DDP alone does, and resumes from a checkpoint as if it had not stopped."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist

from examples.recommender.train import train

STEPS = 3


def trained(group: dist.ProcessGroup, folder: str) -> list[list[torch.Tensor]]:
    """Return the weights after some steps: at once, from a checkpoint in between, and by DDP's own way."""
    at_once = train(STEPS, "balanced", None)
    train(1, "balanced", Path(folder) / "model.pt")
    resumed = train(STEPS, "balanced", Path(folder) / "model.pt")
    with mock.patch.dict(os.environ, {"ZENC_ATTACH": "0"}):
        alone = train(STEPS, "balanced", None)
    return [[each.detach() for each in model.parameters()] for model in (at_once, resumed, alone)]


def test_a_run_goes_on_as_if_it_had_not_stopped(two, tmp_path):
    for at_once, resumed, alone in two.run(f"{__name__}:trained", folder=str(tmp_path)):
        for one, other, by_ddp in zip(at_once, resumed, alone, strict=True):
            assert torch.equal(one, other)
            torch.testing.assert_close(one, by_ddp, rtol=1e-4, atol=1e-5)
