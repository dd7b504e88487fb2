"""Training by DDP with zenc beside it, and calls by hand, over the group and on the device that the command names.

    python -m tests.gpu.train nccl cuda:0                                       # one rank
    torchrun --nproc-per-node 2 -m tests.gpu.train nccl cuda:0                  # ranks that share a GPU

Ends well if training with zenc gives the parameters of training without DDP, and sums on the device have the bits of
sums on the CPU. Dense gradients go in many small buckets, so that DDP's own messages are under way beside zenc's. Ranks
share a GPU where NCCL lets them: 2.30.3 or later, with NCCL_MULTI_RANK_GPU_ENABLE=1.
"""

import contextlib
import os
import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zenc
from tests.support.cases import DTYPES, KINDS, dense_tensor, same_bits, sparse_tensor, with_one_nan
from zenc.common.wording import count

ROWS, WIDTH, STEPS, BATCH = 2000, 16, 4, 64
BUCKET_MB = 0.01
"""Size of a bucket, below that of layers, so that each layer has its own."""


class Tables(nn.Module):
    """A table with sparse gradients, one with dense gradients that are mostly rows of zeros, and layers."""

    def __init__(self) -> None:
        super().__init__()
        self.sparse = nn.Embedding(ROWS, WIDTH, sparse=True)
        self.rows = nn.Embedding(ROWS, WIDTH)
        self.layers = nn.Sequential(*(nn.Linear(WIDTH * 4**i, WIDTH * 4 ** (i + 1)) for i in range(2)))
        self.head = nn.Linear(WIDTH * 16, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.sparse(ids) + self.rows(ids.flip(0))))


def trained(device: torch.device, scheme: str | None) -> list[torch.Tensor]:
    """Return the parameters after some steps: with ``scheme`` under DDP, or (None) of the bare model on all batches."""
    torch.manual_seed(0)
    model, size = Tables().to(device), dist.get_world_size()
    if scheme is None:
        return stepped(model, model, device, range(size))
    ids = [device.index] if device.type == "cuda" else None
    ddp = DistributedDataParallel(model, device_ids=ids, bucket_cap_mb=BUCKET_MB)
    handle = zenc.attach(ddp, scheme, dense=["rows.weight"], deadline=60)
    parameters = stepped(ddp, model, device, range(dist.get_rank(), dist.get_rank() + 1))
    assert {name: counted["units_out"] for name, counted in handle.stats.items()} == {
        "sparse.weight": BATCH * size, "rows.weight": BATCH * size,
    }, handle.stats  # fmt: skip
    return parameters


def stepped(whole: nn.Module, model: nn.Module, device: torch.device, batches: range) -> list[torch.Tensor]:
    """Return the parameters after steps with distinct ids, so that no gradient depends on the order of additions."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0001)
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        ids = torch.randperm(ROWS, generator=generator)[: BATCH * dist.get_world_size()]
        optimizer.zero_grad()
        for batch in batches:
            loss = whole(ids[batch * BATCH :][:BATCH].to(device)).pow(2).sum()
            (loss / len(batches)).backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in model.parameters()]


def check_calls(device: torch.device, scheme: str) -> None:
    """Check that sums on the current stream, on another one, and asynchronous ones have the bits of the CPU."""
    collective, rank, size = zenc.load(scheme, deadline=60), dist.get_rank(), dist.get_world_size()
    for turn, kind in enumerate(KINDS):
        for make in (sparse_tensor, dense_tensor):
            tensor = make(kind, rank, size, 200, 5, DTYPES[turn % len(DTYPES)], turn)
            expected = collective.all_reduce(tensor.clone(), "mean")
            for asynchronous in (False, True):
                with on_a_stream(device):
                    given = tensor.to(device, copy=True)
                    found = collective.all_reduce(given, "mean", async_op=asynchronous)
                    result = found.wait().cpu() if asynchronous else found.cpu()
                assert same_bits([with_one_nan(expected), with_one_nan(result)])


@contextlib.contextmanager
def on_a_stream(device: torch.device) -> Iterator[None]:
    if device.type != "cuda":
        yield
        return
    with torch.cuda.stream(torch.cuda.Stream(device)):
        yield


def open_group(backend: str, name: str) -> torch.device:
    """Return the device ``name``, and a process group over ``backend``: torchrun's ranks, or this one alone."""
    device = torch.device(name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    return device


def main(backend: str, name: str) -> None:
    device = open_group(backend, name)
    for scheme in ("balanced", "zen", "holders"):
        for with_zenc, without in zip(trained(device, scheme), trained(device, None), strict=True):
            torch.testing.assert_close(with_zenc, without)
        check_calls(device, scheme)
    ranks = dist.get_world_size()
    dist.destroy_process_group()
    print(f"trained on {device} over {backend}: {count(ranks, 'rank')}")


if __name__ == "__main__":
    main(*sys.argv[1:])
