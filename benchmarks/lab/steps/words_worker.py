"""A rank's process in a dry run, which trains the word model by DDP with sparse tables, and prints its profile.

``benchmarks.lab.launch`` starts it with the file of word ids as an argument.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.lab.steps.profile_worker import profiled
from benchmarks.lab.training.settings import DDP, Training
from benchmarks.lab.training.worker import lanes
from benchmarks.lab.worker import work


def observed(settings: Training) -> dict[str, Any]:
    """Return ``profile``: the text of the model's profile."""
    warnings.filterwarnings("ignore", message="Sparse invariant checks")  # Adagrad's own
    text = torch.from_numpy(np.load(sys.argv[1]))
    (lane,) = lanes(DDP[1:], dist.get_rank(), text, settings.workload).values()
    return profiled(lane, lane.ddp)


if __name__ == "__main__":
    work(lambda given: observed(Training.from_json(given)))
