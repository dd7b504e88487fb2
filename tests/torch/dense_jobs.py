"""Jobs of ranks in the tests of dense gradients that go through a scheme; each takes the group first."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zenc
from tests.runtime.jobs import bits
from zenc.torch.handle import Attachment

STEPS, WIDTH = 5, 48


class Layers(nn.Module):
    """Dense layers, two of which share a weight on request, and one may be left out."""

    def __init__(self, shared: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, 4)
        if shared:
            self.second.weight = self.first.weight
        self.use_second = True

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(given))
        if self.use_second:
            hidden = torch.tanh(self.second(hidden))
        return self.last(hidden)


def wrapped(group: dist.ProcessGroup, shared: bool = False, **options: Any) -> DistributedDataParallel:
    torch.manual_seed(0)
    return DistributedDataParallel(Layers(shared), process_group=group, **options)


def given(rank: int, step: int) -> torch.Tensor:
    return torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(100 * step + rank))


def backward(ddp: DistributedDataParallel, rank: int, step: int) -> None:
    ddp(given(rank, step)).pow(2).sum().backward()


def trained(ddp: DistributedDataParallel, rank: int, accumulate: bool = False) -> list[torch.Tensor]:
    """Return the parameters after some steps."""
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        if accumulate:
            with ddp.no_sync():
                backward(ddp, rank, step + 50)
        backward(ddp, rank, step)
        optimizer.step()
    return [parameter.detach().clone() for parameter in ddp.parameters()]


def attached(ddp: DistributedDataParallel, scheme: Any, dense: Any, **options: Any) -> Attachment:
    return zenc.attach(ddp, scheme, dense=dense, deadline=30, **options)


def same_as_ddp(
    group: dist.ProcessGroup, scheme: str, how: dict[str, Any], accumulate: bool = False, **options: Any
) -> tuple[list[str], tuple[str, ...]]:
    """Check lossless training against DDP, up to order; return fingerprints and served parameters."""
    rank = group.rank()
    theirs = trained(wrapped(group, **options), rank, accumulate)
    ddp = wrapped(group, **options)
    handle = attached(ddp, scheme, True, **how)
    ours = trained(ddp, rank, accumulate)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)
    assert sum(totals.calls for totals in handle.state.log.totals.values()) >= STEPS
    return [bits(parameter) for parameter in ours], handle.parameters
