"""Jobs of ranks in the tests of strategies under DDP; each takes the group first."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zenc
from tests.runtime.jobs import bits
from tests.torch.dense_jobs import attached, backward, wrapped
from tests.torch.feedback_jobs import assert_conserved, local
from zenc.kinds import open as open_text
from zenc.torch.handle import Attachment
from zenc.torch.strategy import grouping as groupings

SCHEDULE = "communication: point_to_point aggregation: incremental partition: parallelism balance: imbalanced"
TEXT = f"""
scheme topped {{ {SCHEDULE} select: top_of_parts(0.1) push: coo pull: dense feedback: residual }}
scheme signed {{ {SCHEDULE} push: dense as sign(64) pull: dense as sign(64) feedback: residual }}
strategy tried {{ %s }}
"""
EACH = 1e-6
"""``bucket_cap_mb`` that gives each gradient a bucket of its own."""


def strategy(path: str, group: dist.ProcessGroup, rules: str) -> str:
    """Write a file with a strategy, one for each rank."""
    file = Path(path) / f"rank{group.rank()}.zen"
    file.write_text(TEXT % rules)
    return str(file)


def residuals(handle: Attachment, ddp: DistributedDataParallel) -> list[torch.Tensor]:
    """Return this rank's residuals of all parameters, float64; zeros where nothing is kept."""
    found = []
    for name, parameter in ddp.module.named_parameters():
        try:
            found.append(handle.residual(name).double())
        except zenc.TensorError:
            found.append(torch.zeros_like(parameter, dtype=torch.float64))
    return found


def one_rule(group: dist.ProcessGroup, path: str, scheme: str, **options: Any) -> list[list[str]]:
    """Return fingerprints of parameters trained by a one-rule strategy, text and compiled, and by its scheme."""
    found = []
    text = strategy(path, group, f"others: {scheme}")
    directory = open_text(text).compile().save(Path(path) / f"rank{group.rank()}")[scheme].parent
    alone = zenc.compile_text(TEXT.partition("strategy")[0], scheme=scheme)
    for what in (text, str(directory), alone):
        ddp = wrapped(group, **options)
        attached(ddp, what, what is alone, least_values=1)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.001)
        for step in range(4):
            optimizer.zero_grad()
            backward(ddp, group.rank(), step)
            optimizer.step()
        found.append([bits(parameter) for parameter in ddp.parameters()])
    return found


def conserved(group: dist.ProcessGroup, path: str, rules: str, steps: int = 5, **options: Any) -> dict[str, Any]:
    """Check that steps in which DDP rebuilds its buckets lose nothing; return the kind of each call, by its name."""
    ddp = wrapped(group, **options)
    handle = attached(ddp, strategy(path, group, rules), False)
    gave = [torch.zeros_like(p, dtype=torch.float64) for p in ddp.parameters()]
    got = [torch.zeros_like(total) for total in gave]
    ways = set()
    for step in range(steps):
        ddp.zero_grad()
        gave = [total + own for total, own in zip(gave, local(ddp, group.rank(), step), strict=True)]
        backward(ddp, group.rank(), step)
        got = [total + p.grad for total, p in zip(got, ddp.parameters(), strict=True)]
        ways |= {(name, stats["scheme"]) for name, stats in handle.stats.items()}
    assert_conserved(group, gave, got, residuals(handle, ddp))
    return {
        "ways": ways,
        "calls": {name: (stats["rule"], stats["scheme"], stats["units"]) for name, stats in handle.stats.items()},
        "rules": handle.rules,
        "kept": [bool(each.any()) for each in residuals(handle, ddp)],
        "bits": [bits(p.grad) for p in ddp.parameters()],
        "decisions": [str(each.scheme) for each in handle.decisions],
    }


def searched(group: dist.ProcessGroup, path: str, groups: str) -> tuple[Any, list[str], int]:
    """Run a search on measured steps: return its result, gradients of the last step, and the number of calls."""
    groupings.WARM_UP, groupings.MEASURED = 1, 2
    ddp = wrapped(group, bucket_cap_mb=EACH)
    handle = attached(ddp, strategy(path, group, f"groups: {groups} others: dense_ring"), False)
    grouping: Any = handle.state.plan.grouping
    step = 0
    while grouping.found is None and step < 200:
        backward(ddp, group.rank(), step % 7)
        step += 1
    ddp.zero_grad()
    before = sum(totals.calls for totals in handle.state.log.totals.values())
    backward(ddp, group.rank(), 0)
    after = sum(totals.calls for totals in handle.state.log.totals.values())
    again = attached(
        wrapped(group, bucket_cap_mb=EACH), strategy(path, group, f"groups: {groups} others: dense_ring"), False
    )
    again.load_state_dict(handle.state_dict())
    assert again.state.plan.grouping._restored["known"] == handle.state_dict()["groups"]["known"]
    return (grouping.found, grouping.known), [bits(p.grad) for p in ddp.parameters()], after - before


def restarted(group: dist.ProcessGroup, path: str, before: str, after: str, together: bool) -> list[list[torch.Tensor]]:
    """Return residuals at the end of a run, and at the start of another with other rules, as sums over the ranks."""
    ddp = wrapped(group)
    first = attached(ddp, strategy(path, group, before), False)
    for step in range(3):
        backward(ddp, group.rank(), step)
    state = first.state_dict(together)
    found = [residuals(first, ddp)]
    ddp = wrapped(group)
    second = attached(ddp, strategy(path, group, after), False)
    second.load_state_dict(state)
    found.append(residuals(second, ddp))
    for kept in found:
        for each in kept:
            dist.all_reduce(each, group=group)
    backward(ddp, group.rank(), 3)
    return found


def beside_tables(group: dist.ProcessGroup, path: str, rules: str) -> tuple[dict[str, str], float, list[str]]:
    """Train tables by rules; return the rules, the distance of all gradients from the average, and the log."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(50, 48, sparse=True), nn.Linear(48, 48))
    ddp, logged = DistributedDataParallel(model, process_group=group), list[str]()
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("zenc").addHandler(handler)
    try:
        handle = attached(ddp, strategy(path, group, rules), False)
        ids = torch.full((2, 3), group.rank())
        own = [g.to_dense() for g in torch.autograd.grad(model(ids).sum(), list(model.parameters()))]
        for _ in range(6):
            ddp.zero_grad()
            ddp(ids).sum().backward()
    finally:
        logging.getLogger("zenc").removeHandler(handler)
    for each in own:
        dist.all_reduce(each, group=group)
    both = zip(model.parameters(), own, strict=True)
    return handle.rules, max(float((p.grad.to_dense() - e / group.size()).abs().max()) for p, e in both), logged


def refused(group: dist.ProcessGroup, path: str, rules: str, twice: bool = False, **options: Any) -> None:
    ddp = wrapped(group)
    for _ in range(2 if twice else 1):
        attached(ddp, strategy(path, group, rules), False, **options)
