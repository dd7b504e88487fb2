"""What is compared: each lane trains a model of its own under DDP, and differs in how gradients are summed.

ddp-dense      DDP as it is, tables with dense gradients
ddp-sparse     DDP as it is, tables with sparse gradients: torch.distributed.all_reduce of sparse COO tensors
any other      ``zenc.attach`` with a scheme, by its name or its file; tables with sparse gradients
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

import torch
from torch.nn.parallel import DistributedDataParallel

import zenc
from benchmarks.lab.peers import Peer
from benchmarks.lab.training.settings import DDP
from examples.language_model.batches import Batch, Batches
from examples.language_model.model import Sizes, new_model, optimisers
from zenc.torch.handle import Attachment


class Lane(Peer):
    """One call is one training step, from forward pass to update; its result is the loss of this rank."""

    def __init__(
        self, ddp: DistributedDataParallel, optimisers: Sequence[torch.optim.Optimizer], batches: Iterator[Batch]
    ) -> None:
        self.ddp, self.optimisers, self.batches = ddp, optimisers, batches
        self.attached: Attachment | None = None

    def prepare(self) -> None:
        self.batch = next(self.batches)

    def call(self) -> torch.Tensor:
        loss: torch.Tensor = self.ddp(self.batch.before, self.batch.target, self.batch.negatives)
        torch.autograd.backward(loss)
        for optimiser in self.optimisers:
            optimiser.step()
            optimiser.zero_grad()
        return loss.detach()

    def counted(self) -> tuple[int, int] | None:
        """Of the tables; dense gradients travel by DDP, which does not count."""
        if self.attached is None:
            return None
        stats = self.attached.stats.values()
        return sum(table["bytes_sent"] for table in stats), sum(table["bytes_received"] for table in stats)


def lanes(names: Iterable[str], rank: int, text: torch.Tensor, sizes: Sizes) -> dict[str, Lane]:
    """A lane for each of ``names``. All start from the same weights, and each takes the same batches one by one."""
    taken = Taken(Batches.of_rank(rank, text, sizes))
    return {name: lane(name, sizes, taken) for name in names}


def lane(name: str, sizes: Sizes, taken: Taken) -> Lane:
    """All ranks make it together. Their weights are equal by their seed, so nothing is sent to make them so."""
    model = new_model(sizes, sparse=name != "ddp-dense")
    made = Lane(DistributedDataParallel(model, init_sync=False), optimisers(model), iter(taken))
    if name not in DDP:
        made.attached = zenc.attach(made.ddp, name)
    return made


class Taken:
    """The batches of a rank, kept, so that each lane finds them from the first on whenever its turn comes."""

    def __init__(self, batches: Batches) -> None:
        self.batches, self.kept = batches, list[Batch]()

    def __iter__(self) -> Iterator[Batch]:
        for number in count():
            if number == len(self.kept):
                self.kept.append(self.batches.next())
            yield self.kept[number]
