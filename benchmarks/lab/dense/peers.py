"""Ways to average dense gradients: each has a model of its own, of one parameter, under DDP; a call is a backward pass.

torch-dense      DDP as it is
torch-fp16       DDP with torch's fp16_compress_hook
torch-powersgd   DDP with torch's powerSGD_hook of rank 1, once it has begun to compress
no-sync          DDP as it is, and nothing is summed, by its ``no_sync``; in training alone
any other        ``zenc.attach`` with a scheme, by its name or its file, and ``dense=True``

Of several tensors there is no model: torch's all-reduce, or a scheme's, of each of them, asynchronously.

``benchmarks.lab.launch`` starts this module as it starts ``benchmarks.lab.worker``; with ``CHARACTERS`` as an argument
it makes training steps.
"""

import sys
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import zenc
from benchmarks.convergence.characters import Text, batches, loss_of, new_model, text, windows
from benchmarks.convergence.runs import MOMENTUM, RATE
from benchmarks.convergence.trainer import digest
from benchmarks.lab.dense.settings import FP16, POWERSGD, TORCH, Backwards, CharacterSteps
from benchmarks.lab.peers import Peer, bytes_of, rehearse
from benchmarks.lab.settings import NO_SYNC, LabError
from benchmarks.lab.worker import record_of, work
from zenc.runtime.call.call_queue import Work
from zenc.torch.handle import Attachment

SETTLING = 3
"""Calls before the first round: DDP rebuilds its buckets after one, and PowerSGD begins after two."""


class OneParameter(nn.Module):
    """A model of one parameter, ``weight``, whose gradient is the input of the model."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(rows, columns))

    def forward(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return the sum [] of the product of both, [rows, columns]."""
        return (self.weight * gradient).sum()


class Backward(Peer):
    """A way, DDP's own, whose call is one backward pass; its result is the average gradient [rows, columns]."""

    def __init__(self, settings: Backwards, rank: int, name: str) -> None:
        of = settings.workload
        self.ddp = DistributedDataParallel(OneParameter(of.rows, of.columns), init_sync=False)
        hook_by_torch(self.ddp, name)
        self.shape = of.rows, of.columns
        self.drawn = torch.Generator().manual_seed(1000 * settings.seed + rank)

    def settle(self) -> None:
        rehearse(self, SETTLING)

    def prepare(self) -> None:
        self.ddp.zero_grad()
        self.gradient = torch.randn(self.shape, generator=self.drawn)
        self.loss: torch.Tensor = self.ddp(self.gradient)

    def call(self) -> torch.Tensor:
        torch.autograd.backward(self.loss)
        averaged = self.ddp.module.weight.grad
        assert isinstance(averaged, torch.Tensor)
        return averaged


class Attached(Backward):
    """The way of a scheme of zenc. Where it keeps its losses, nothing may be lost: ``check`` adds all of it up."""

    def __init__(self, settings: Backwards, rank: int, scheme: str) -> None:
        super().__init__(settings, rank, scheme)
        self.handle = zenc.attach(self.ddp, scheme, dense=True)
        self.given = torch.zeros(self.shape, dtype=torch.float64)
        self.got = torch.zeros(self.shape, dtype=torch.float64)

    def finish(self) -> None:
        averaged = self.ddp.module.weight.grad
        assert isinstance(averaged, torch.Tensor)
        self.given += self.gradient
        self.got += averaged

    def counted(self) -> tuple[int, int] | None:
        return bytes_of([self.handle.stats["weight"]])

    def check(self, name: str) -> None:
        """Raise LabError unless all gradients of all ranks are in the averages, or in what the ranks still keep."""
        collective = self.handle.collective
        if collective.artifact.plan.feedback is not None:
            ensure_all_there(name, self.given, self.got, collective.residual("weight").view(self.shape))


class Calls(Peer):
    """A way whose call averages several tensors, all of them under way at once, by torch if ``scheme`` is in TORCH.

    Where the scheme keeps what it loses, nothing may be lost: ``check`` adds all of it up.
    """

    def __init__(self, settings: Backwards, rank: int, scheme: str) -> None:
        of = settings.workload
        self.shape = of.tensors, *of.shape
        self.drawn = torch.Generator().manual_seed(1000 * settings.seed + rank)
        self.collective = None if scheme in TORCH else zenc.load(scheme)
        self.given = torch.zeros(self.shape, dtype=torch.float64)
        self.got = torch.zeros(self.shape, dtype=torch.float64)
        self.works: list[Work] = []

    def settle(self) -> None:
        rehearse(self, SETTLING)

    def prepare(self) -> None:
        self.gradients = torch.randn(self.shape, generator=self.drawn)
        self.given += self.gradients

    def call(self) -> torch.Tensor:
        """Return the averages, [tensors, rows, columns], in place of the gradients."""
        if self.collective is None:
            for work in [dist.all_reduce(each, async_op=True) for each in self.gradients]:
                work.wait()
            return self.gradients.div_(dist.get_world_size())
        average = partial(self.collective.all_reduce, op="mean", async_op=True)
        self.works = [average(each, name=str(number)) for number, each in enumerate(self.gradients)]
        for work in self.works:
            work.wait()
        return self.gradients

    def counted(self) -> tuple[int, int] | None:
        return bytes_of(work.stats for work in self.works) if self.works else None

    def finish(self) -> None:
        self.got += self.gradients

    def check(self, name: str) -> None:
        if self.collective is not None and self.collective.artifact.plan.feedback is not None:
            kept = [self.collective.residual(str(number)) for number in range(len(self.given))]
            ensure_all_there(name, self.given, self.got, torch.stack(kept))


def ensure_all_there(name: str, given: torch.Tensor, got: torch.Tensor, kept: torch.Tensor) -> None:
    """Raise LabError unless what all ranks have ``given`` is in the averages ``got``, or ``kept``; all of one shape."""
    missing = given - kept
    dist.all_reduce(missing)
    apart = float((missing / dist.get_world_size() - got).abs().max())
    if apart > 1e-3:
        raise LabError(f"{name} loses gradients: {apart:g} of a unit is neither summed nor kept")


def hook_by_torch(ddp: DistributedDataParallel, name: str) -> None:
    """Give ``ddp`` the hook of the way ``name``, if that has one."""
    powersgd = PowerSGDState(process_group=None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    hooks: dict[str, tuple[Any, Any]] = {FP16: (None, fp16_compress_hook), POWERSGD: (powersgd, powerSGD_hook)}
    if name in hooks:
        ddp.register_comm_hook(*hooks[name])


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
        return bytes_of(self.handle.stats.values()) if self.handle else None

    def check(self) -> None:
        """Raise LabError where the ranks hold different weights."""
        found: list[str] = [""] * dist.get_world_size()
        dist.all_gather_object(found, digest(self.ddp.parameters()))
        if self.name != NO_SYNC and len(set(found)) > 1:
            raise LabError(f"{self.name}: the ranks hold different weights after {len(self.losses)} steps")


CHARACTERS = "characters"
FILES = 40
"""The number of files of the text, which is enough for some steps."""


def way(settings: Backwards, rank: int, name: str) -> Backward | Calls:
    """Return the way ``name``; all ranks make it together."""
    if settings.workload.tensors > 1:
        return Calls(settings, rank, name)
    return Backward(settings, rank, name) if name in TORCH else Attached(settings, rank, name)


def measured(settings: Backwards) -> dict[str, Any]:
    """Return the record of this rank; raises LabError where a scheme loses gradients."""
    peers = {name: way(settings, dist.get_rank(), name) for name in settings.peers}
    record = record_of(settings, peers)
    for name, peer in peers.items():
        if isinstance(peer, Attached | Calls):
            peer.check(name)
    return record


def trained(settings: CharacterSteps) -> dict[str, Any]:
    """Return the record of this rank, with ``losses``: peer -> its loss in each step; LabError where weights differ."""
    rank, of = dist.get_rank(), text(FILES)
    peers = {name: CharacterStep(name, settings, rank, of) for name in settings.peers}
    record = record_of(settings, peers)
    for peer in peers.values():
        peer.check()
    return {**record, "losses": {name: peer.losses for name, peer in peers.items()}}


if __name__ == "__main__":
    if CHARACTERS in sys.argv:
        work(lambda given: trained(CharacterSteps.from_json(given)))
    else:
        work(lambda given: measured(Backwards.from_json(given)))
