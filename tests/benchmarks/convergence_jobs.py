"""Jobs of ranks in the tests of convergence: the same training by processes under DDP, and by ranks that one plays."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import zenc
from benchmarks.convergence.characters import ALPHABET, Sizes, Text, batches, loss_of, new_model, windows
from benchmarks.convergence.runs import Run
from benchmarks.convergence.trainer import Trainer, compiled, digest

SIZES = Sizes(context=4, width=4, hidden=48, narrow=24, batch=8)
SEED = 3


def characters() -> Text:
    drawn = torch.randint(0, ALPHABET, (3000,), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    return Text(drawn[:2000], drawn[2000:])


def by_ddp(group: dist.ProcessGroup, run: Run, steps: int) -> str:
    """Train in one process a rank, with all parameters in one bucket that goes through the scheme."""
    model = DistributedDataParallel(new_model(SIZES, SEED), process_group=group, bucket_cap_mb=64)
    zenc.attach(model, compiled(run.scheme, run.ranks), dense=True, least_values=1, deadline=30)
    optimizer = torch.optim.SGD(model.parameters(), lr=run.rate, momentum=run.momentum)
    generator = batches(SEED, group.rank())
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, windows(characters().train, SIZES.batch, SIZES.context, generator)).backward()
        optimizer.step()
    return digest(model.parameters())


def played(_: dist.ProcessGroup, run: Run, steps: int) -> str:
    """Train all ranks in this process."""
    trainer = Trainer(run, SEED, SIZES, characters())
    for _ in range(steps):
        trainer.step()
    return digest(trainer.parameters)
