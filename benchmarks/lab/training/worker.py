"""A rank's process, which trains all lanes in turns, and records the time and the loss of each step.

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

BRIEF = "--brief"
"""The argument after the file of word ids that asks for a few lines of progress."""


def measured(training: Training, text: torch.Tensor) -> dict[str, Any]:
    """Return the record of this rank.

    With it go ``losses``: peer -> its loss in each step from the first on, and ``chosen``: peer -> table -> scheme.
    """
    peers = lanes(training.peers, dist.get_rank(), text, training.workload)
    record = record_of(training, peers, tell=Brief(training) if BRIEF in sys.argv else None)
    of_lanes = {name: (lane.losses, lane.chosen()) for name, lane in peers.items()}
    losses, chosen = ({name: of[k] for name, of in of_lanes.items()} for k in range(2))
    return {**record, "losses": losses, "chosen": chosen}


class Brief:
    """A listener that prints a line about all lanes every tenth round."""

    def __init__(self, training: Training) -> None:
        self.rounds = training.rounds
        self.number = 0
        self.took: dict[str, float] = {}

    def __call__(self, number: int, name: str, seconds: float) -> None:
        if number != self.number:
            if self.number % 10 == 0 and self.took:
                shown = ", ".join(f"{lane} {took * 1e3:.0f} ms" for lane, took in sorted(self.took.items()))
                print(f"  step {self.number + 1:2} of {self.rounds}: {shown}", file=sys.stderr)
            self.number, self.took = number, {}
        self.took[name] = seconds


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="Sparse invariant checks")  # Adagrad's own
    words = torch.from_numpy(np.load(sys.argv[1]))
    work(lambda given: measured(Training.from_json(given), words))
