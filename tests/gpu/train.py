"""One rank's training by DDP, and calls by hand, over the group and on the device that the command names.

    python -m tests.gpu.train nccl cuda:0

Ends well if training with zenc gives the parameters of training without DDP, and sums on the device have the bits of
sums on the CPU. For a process of its own, which then has a process group.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zenc
from tests.support.cases import DTYPES, KINDS, assert_same_bits, dense_tensor, sparse_tensor, with_one_nan

ROWS, WIDTH, STEPS, BATCH = 2000, 16, 4, 64


class Tables(nn.Module):
    """A table with sparse gradients, one with dense gradients that are mostly rows of zeros, and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.sparse = nn.Embedding(ROWS, WIDTH, sparse=True)
        self.rows = nn.Embedding(ROWS, WIDTH)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.sparse(ids) + self.rows(ids.flip(0)))


def trained(device: torch.device, scheme: str | None) -> list[torch.Tensor]:
    """The parameters after some steps: with ``scheme`` under DDP, or (None) of the bare model."""
    torch.manual_seed(0)
    model = Tables().to(device)
    if scheme is None:
        return stepped(model, model, device)
    ddp = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    handle = zenc.attach(ddp, scheme, dense=["rows.weight"], deadline=60)
    parameters = stepped(ddp, model, device)
    assert {name: counted["units_out"] for name, counted in handle.stats.items()} == {
        "sparse.weight": BATCH, "rows.weight": BATCH,
    }, handle.stats  # fmt: skip
    return parameters


def stepped(whole: nn.Module, model: nn.Module, device: torch.device) -> list[torch.Tensor]:
    """No id comes twice in a batch, so that no gradient depends on the order of additions."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        ids = torch.randperm(ROWS, generator=generator)[:BATCH].to(device)
        optimizer.zero_grad()
        whole(ids).pow(2).sum().backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in model.parameters()]


def check_calls(device: torch.device, scheme: str) -> None:
    """On the current stream, on another one, and going on meanwhile: all have the bits of the CPU."""
    collective = zenc.load(scheme, deadline=60)
    for turn, kind in enumerate(KINDS):
        for make in (sparse_tensor, dense_tensor):
            tensor = make(kind, 0, 1, 200, 5, DTYPES[turn % len(DTYPES)], turn)
            expected = collective.all_reduce(tensor.clone(), "mean")
            for asynchronous in (False, True):
                with on_a_stream(device):
                    given = tensor.to(device, copy=True)
                    found = collective.all_reduce(given, "mean", async_op=asynchronous)
                    result = found.wait().cpu() if asynchronous else found.cpu()
                assert_same_bits([with_one_nan(expected), with_one_nan(result)])


@contextlib.contextmanager
def on_a_stream(device: torch.device) -> Iterator[None]:
    if device.type != "cuda":
        yield
        return
    with torch.cuda.stream(torch.cuda.Stream(device)):
        yield


def main(backend: str, name: str) -> None:
    device = torch.device(name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    for scheme in ("balanced", "zen", "holders"):
        for with_zenc, without in zip(trained(device, scheme), trained(device, None), strict=True):
            torch.testing.assert_close(with_zenc, without)
        check_calls(device, scheme)
    dist.destroy_process_group()
    print(f"trained on {device} over {backend}")


if __name__ == "__main__":
    main(*sys.argv[1:])
