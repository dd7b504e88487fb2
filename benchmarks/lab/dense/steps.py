"""Training steps of the character model: each way trains a model of its own, from equal weights and on equal batches.

A call is one step: forward pass, backward pass under DDP with its averages, and update. The ways are those of
``benchmarks.lab.dense.peers``, and files of strategies, which are about all gradients. Ranks have batches of their
own, and so losses of their own; that their weights stay equal, to the bit, is asserted at the end.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import zenc
from benchmarks.convergence.characters import Text, batches, loss_of, new_model, windows
from benchmarks.convergence.runs import MOMENTUM, RATE
from benchmarks.convergence.trainer import digest
from benchmarks.lab.dense.peers import SETTLING, hook_by_torch
from benchmarks.lab.dense.settings import TORCH, CharacterSteps
from benchmarks.lab.peers import Peer, rehearse
from benchmarks.lab.settings import LabError
from benchmarks.lab.training.settings import NO_SYNC
from zenc.torch.handle import Attachment

ONE_BUCKET = {"torch-powersgd": 64}
"""Ways that take all gradients in one bucket of DDP, with its MB.

PowerSGD's hook makes its second all-reduce when the first of the bucket has ended, which over gloo is in another order
on each rank where there are several buckets: they wait for each other for ever.
"""


class CharacterStep(Peer):
    """The way ``name``; the result of a call is the loss [] of this rank. ``losses``: of all steps so far."""

    def __init__(self, name: str, settings: CharacterSteps, rank: int, text: Text) -> None:
        self.name, self.sizes, self.text = name, settings.workload, text
        model = new_model(self.sizes, settings.seed)
        self.ddp = DistributedDataParallel(model, init_sync=False, bucket_cap_mb=ONE_BUCKET.get(name))
        self.optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
        self.drawn = batches(settings.seed, rank)
        self.handle: Attachment | None = None
        if name in TORCH:
            hook_by_torch(self.ddp, name)
        elif name != NO_SYNC:
            every = not (name.endswith(".zen") and zenc.open(name).kind == "strategy")
            self.handle = zenc.attach(self.ddp, name, dense=every, optimizer=self.optimizer)
        self.losses: list[float] = []

    def settle(self) -> None:
        rehearse(self, SETTLING)

    def prepare(self) -> None:
        self.batch = windows(self.text.train, self.sizes.batch, self.sizes.context, self.drawn)

    def call(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        with self.ddp.no_sync() if self.name == NO_SYNC else nullcontext():
            self.loss = loss_of(self.ddp, self.batch)
            torch.autograd.backward(self.loss)
        self.optimizer.step()
        return self.loss

    def finish(self) -> None:
        self.losses.append(float(self.loss.detach()))

    def counted(self) -> tuple[int, int] | None:
        """Return the bytes that the scheme sent and received; None for DDP's own ways, which do not count."""
        if self.handle is None:
            return None
        stats = self.handle.stats.values()
        return sum(each["bytes_sent"] for each in stats), sum(each["bytes_received"] for each in stats)

    def check(self) -> None:
        """Raise LabError where the ranks hold different weights."""
        found: list[str] = [""] * dist.get_world_size()
        dist.all_gather_object(found, digest(self.ddp.parameters()))
        if self.name != NO_SYNC and len(set(found)) > 1:
            raise LabError(f"{self.name}: the ranks hold different weights after {len(self.losses)} steps")


def steps(settings: CharacterSteps, rank: int, text: Text) -> dict[str, CharacterStep]:
    """Return a way for each peer; all ranks make them together."""
    return {name: CharacterStep(name, settings, rank, text) for name in settings.peers}
