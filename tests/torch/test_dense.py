"""Dense gradients through schemes, on real gloo processes: the whole bucket, or all but excluded parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zenc
from tests.runtime.jobs import bits
from tests.support.ranks import RanksFailed
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


JOBS = "tests.torch.test_dense:"
WEIGHTS = ("first.weight", "second.weight", "last.weight")
NAMES = tuple(f"{layer}.{kind}" for layer in ("first", "second", "last") for kind in ("weight", "bias"))


@pytest.mark.parametrize(
    "options",
    [{}, {"accumulate": True}, {"shared": True}, {"static_graph": True}, {"find_unused_parameters": True},
     {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.001}],
    ids=lambda options: next(iter(options), "plain"),
)  # fmt: skip
@pytest.mark.parametrize("how", [{}, {"exclude": ["*.bias"]}, {"least_values": 100, "exclude": "second.*"}], ids=str)
def test_a_lossless_scheme_trains_as_ddp_does(four, how, options):
    results = four.run(JOBS + "same_as_ddp", size=3, scheme="dense_ring", how=how, **options)
    assert all(result == results[0] for result in results)
    served = {0: NAMES, 1: WEIGHTS, 2: ("first.weight", "last.weight")}[len(how)]
    assert results[0][1] == tuple(name for name in served if not options.get("shared") or name != "second.weight")


def test_a_pattern_that_excludes_nothing(two):
    with pytest.raises(RanksFailed) as caught:
        two.run(JOBS + "same_as_ddp", scheme="dense_ring", how={"exclude": ["first.wait"]})
    text = str(caught.value.errors[0])
    assert "error[unknown-parameter]" in text and "did you mean 'first.weight'?" in text
