"""Ways to average dense gradients: each has a model of its own, of one parameter, under DDP; a call is a backward pass.

torch-dense      DDP as it is
torch-fp16       DDP with torch's fp16_compress_hook
torch-powersgd   DDP with torch's powerSGD_hook of rank 1, once it has begun to compress
no-sync          DDP as it is, and nothing is summed, by its ``no_sync``; in training alone
any other        ``zenc.attach`` with a scheme, by its name or its file, and ``dense=True``
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import zenc
from benchmarks.lab.dense.settings import TORCH, Backwards
from benchmarks.lab.peers import Peer, rehearse
from benchmarks.lab.settings import LabError

SETTLING = 3
"""Calls before the first round: DDP rebuilds its buckets after one, and PowerSGD begins after two."""


class OneParameter(nn.Module):
    """The gradient of ``weight`` is what it is called with."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(rows, columns))

    def forward(self, gradient: torch.Tensor) -> torch.Tensor:
        """The sum [] of the product of both, [rows, columns]."""
        return (self.weight * gradient).sum()


class Backward(Peer):
    """One call is one backward pass; its result is the average gradient [rows, columns]."""

    def __init__(self, settings: Backwards, rank: int) -> None:
        of = settings.workload
        self.ddp = DistributedDataParallel(OneParameter(of.rows, of.columns), init_sync=False)
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
    """By a scheme of zenc. Where it keeps what it loses, nothing may be lost: ``check`` adds all of it up."""

    def __init__(self, settings: Backwards, rank: int, scheme: str) -> None:
        super().__init__(settings, rank)
        self.handle = zenc.attach(self.ddp, scheme, dense=True)
        self.given = torch.zeros(self.shape, dtype=torch.float64)
        self.got = torch.zeros(self.shape, dtype=torch.float64)

    def finish(self) -> None:
        averaged = self.ddp.module.weight.grad
        assert isinstance(averaged, torch.Tensor)
        self.given += self.gradient
        self.got += averaged

    def counted(self) -> tuple[int, int] | None:
        stats = self.handle.stats["weight"]
        return stats["bytes_sent"], stats["bytes_received"]

    def check(self, name: str) -> None:
        """Raise LabError unless all gradients of all ranks are in the averages, or in what the ranks still keep."""
        collective = self.handle.collective
        if collective.artifact.plan.feedback is None:
            return
        missing = self.given - collective.residual("weight").view(self.shape)
        dist.all_reduce(missing)
        apart = float((missing / collective.size - self.got).abs().max())
        if apart > 1e-3:
            raise LabError(f"{name} loses gradients: {apart:g} of a unit is neither summed nor kept")


def backwards(settings: Backwards, rank: int) -> dict[str, Backward]:
    """A way for each peer; all ranks make them together."""
    return {name: backward(name, settings, rank) for name in settings.peers}


def backward(name: str, settings: Backwards, rank: int) -> Backward:
    """The way ``name``."""
    if name not in TORCH:
        return Attached(settings, rank, name)
    made = Backward(settings, rank)
    hook_by_torch(made.ddp, name)
    return made


def hook_by_torch(ddp: DistributedDataParallel, name: str) -> None:
    """Give ``ddp`` the hook of the way ``name``; none to those that have none."""
    powersgd = PowerSGDState(process_group=None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    hooks: dict[str, tuple[Any, Any]] = {
        "torch-fp16": (None, fp16_compress_hook),
        "torch-powersgd": (powersgd, powerSGD_hook),
    }
    if name in hooks:
        ddp.register_comm_hook(*hooks[name])
