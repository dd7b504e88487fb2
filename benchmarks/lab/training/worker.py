"""A rank's process, which trains all lanes in turns, and records the time and the loss of each step.

``benchmarks.lab.launch`` starts it as it starts ``benchmarks.lab.worker``, with the file of word ids as an argument.
Each lane trains a model of its own under DDP; they differ in how gradients are summed:

ddp-dense      DDP as it is, tables with dense gradients
ddp-sparse     DDP as it is, tables with sparse gradients: torch.distributed.all_reduce of sparse COO tensors
no-sync        DDP as it is, and nothing is summed, by its ``no_sync``; tables with sparse gradients
any other      ``zenc.attach`` with a scheme, by its name or its file; tables with sparse gradients; one that chooses,
               as auto does, once it has chosen
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import count
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import zenc
from benchmarks.lab.peers import Peer, bytes_of, calls_to_choose, rehearse
from benchmarks.lab.settings import DDP, NO_SYNC
from benchmarks.lab.training.report import Training
from benchmarks.lab.worker import record_of, work
from examples.language_model.batches import Batch, Batches
from examples.language_model.model import Sizes, new_model, optimisers
from zenc.torch.handle import Attachment


class Lane(Peer):
    """A way whose call is one training step, from forward pass to update; its result is the loss of this rank."""

    def __init__(
        self, ddp: DistributedDataParallel, optimisers: Sequence[torch.optim.Optimizer], batches: Iterator[Batch]
    ) -> None:
        self.ddp, self.optimisers, self.batches = ddp, optimisers, batches
        self.summed = True
        self.attached: Attachment | None = None
        self.losses: list[float] = []
        """The losses of each step from the first on, those of ``settle`` included."""

    def settle(self) -> None:
        rehearse(self, calls_to_choose(self.attached.collective) if self.attached else 0)

    def prepare(self) -> None:
        self.batch = next(self.batches)

    def call(self) -> torch.Tensor:
        with nullcontext() if self.summed else self.ddp.no_sync():
            loss: torch.Tensor = self.ddp(self.batch.before, self.batch.target, self.batch.negatives)
            torch.autograd.backward(loss)
        for optimiser in self.optimisers:
            optimiser.step()
            optimiser.zero_grad()
        self.loss = loss.detach()
        return self.loss

    def finish(self) -> None:
        self.losses.append(float(self.loss))

    def chosen(self) -> dict[str, str]:
        """Return table -> the scheme that summed its gradient last; empty for all but schemes that choose."""
        stats = self.attached.stats if self.attached else {}
        return {table: each["choice"]["scheme"] for table, each in stats.items() if "choice" in each}

    def counted(self) -> tuple[int, int] | None:
        """Return the bytes of the tables; dense gradients travel by DDP, which does not count."""
        return bytes_of(self.attached.stats.values()) if self.attached else None


def lanes(names: Iterable[str], rank: int, text: torch.Tensor, sizes: Sizes) -> dict[str, Lane]:
    """Return a lane for each of ``names``, all from the same weights, each with the same batches one by one."""
    taken = Taken(Batches.of_rank(rank, text, sizes))
    return {name: lane(name, sizes, taken) for name in names}


def lane(name: str, sizes: Sizes, taken: Taken) -> Lane:
    """Return a lane, made by all ranks together; their weights are equal by their seed, without a message."""
    model = new_model(sizes, sparse=name != "ddp-dense")
    made = Lane(DistributedDataParallel(model, init_sync=False), optimisers(model), iter(taken))
    made.summed = name != NO_SYNC
    if name not in (*DDP, NO_SYNC):
        made.attached = zenc.attach(made.ddp, name)
    return made


class Taken:
    """The batches of a rank, kept, so that each lane finds them from the first on, whenever its turn comes."""

    def __init__(self, batches: Batches) -> None:
        self.batches, self.kept = batches, list[Batch]()

    def __iter__(self) -> Iterator[Batch]:
        for number in count():
            if number == len(self.kept):
                self.kept.append(self.batches.next())
            yield self.kept[number]


def measured(training: Training, text: torch.Tensor) -> dict[str, Any]:
    """Return the record of this rank.

    With it go ``losses``: peer -> its loss in each step from the first on, and ``chosen``: peer -> table -> scheme.
    """
    peers = lanes(training.peers, dist.get_rank(), text, training.workload)
    record = record_of(training, peers)
    of_lanes = {name: (lane.losses, lane.chosen()) for name, lane in peers.items()}
    losses, chosen = ({name: of[k] for name, of in of_lanes.items()} for k in range(2))
    return {**record, "losses": losses, "chosen": chosen}


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="Sparse invariant checks")  # Adagrad's own
    words = torch.from_numpy(np.load(sys.argv[1]))
    work(lambda given: measured(Training.from_json(given), words))
