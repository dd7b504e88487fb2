"""One rank: trains every lane in turns, and writes down what each step took and its loss.

``benchmarks.lab.launch`` starts it as it starts ``benchmarks.lab.worker``, with the file of word ids as an argument.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.lab.training.lanes import lanes
from benchmarks.lab.training.settings import Training
from benchmarks.lab.worker import record_of, work


def measured(training: Training, text: torch.Tensor) -> dict[str, Any]:
    """The record of this rank, with ``losses``: peer -> its loss in each step from the first on."""
    losses: dict[str, list[float]] = {name: [] for name in training.peers}
    peers = lanes(training.peers, dist.get_rank(), text, training.workload)
    record = record_of(training, peers, lambda loss, name: losses[name].append(float(loss)))
    return {**record, "losses": losses}


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="Sparse invariant checks")  # Adagrad's own
    words = torch.from_numpy(np.load(sys.argv[1]))
    work(lambda given: measured(Training.from_json(given), words))
