"""A rank's process, which trains the tables of all lanes in turns, and records the time and the loss of each step.

``benchmarks.lab.launch`` starts it as it starts ``benchmarks.lab.worker``, with the file of word ids as an argument.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.bigram.lanes import lane
from benchmarks.bigram.model import Batches
from benchmarks.bigram.settings import Bigrams
from benchmarks.lab.worker import record_of, work


def measured(settings: Bigrams, text: torch.Tensor) -> dict[str, Any]:
    """Return the record of this rank, and ``losses``: lane -> those of this rank, of each step from the first on."""
    batches = Batches(text, settings.workload, dist.get_rank())
    lanes = {name: lane(name, batches) for name in settings.peers}
    return {**record_of(settings, lanes), "losses": {name: each.losses for name, each in lanes.items()}}


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="`torch.distributed.all_gather_into_tensor`", category=FutureWarning)
    words = torch.from_numpy(np.load(sys.argv[1], mmap_mode="c"))
    work(lambda given: measured(Bigrams.from_json(given), words))
