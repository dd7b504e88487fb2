"""``benchmarks.convergence``: simulated ranks train as processes do, and the page shows what the files hold."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import zenc
from benchmarks.convergence import trainer
from benchmarks.convergence.__main__ import curve
from benchmarks.convergence.characters import ALPHABET, Sizes, Text, batches, loss_of, new_model, windows
from benchmarks.convergence.runs import RUNS, Run
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


BY_NAME = {run.name: run for run in RUNS}
JOBS = "tests.benchmarks.test_convergence:"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["top", "dgc-warm"])
def test_processes_under_ddp_train_to_the_same_bits(four, name):
    run = BY_NAME[name]
    by_ddp = four.run(JOBS + "by_ddp", run=run, steps=4)
    assert by_ddp == [by_ddp[0]] * 4
    assert four.run(JOBS + "played", size=1, run=run, steps=4) == by_ddp[:1]


def test_a_run_from_a_checkpoint_is_the_same_and_one_that_forgets_is_not(monkeypatch):
    monkeypatch.setattr(trainer, "text", characters)
    through, again, forgotten = (curve(BY_NAME[name], 1, 8, SIZES) for name in ("top", "restarted", "forgotten"))
    assert through.weights == again.weights != forgotten.weights
    assert through.looks == again.looks and through.end.step == 8
    assert through.end.left and through.end.bits < 7
