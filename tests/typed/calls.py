"""Calls as users write them, for the type checker alone: ``mypy`` reads this folder, and nothing runs it."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import zenc
from zenc.runtime.call.call_queue import Work


def at_once(collective: zenc.Collective, tensor: torch.Tensor) -> torch.Tensor:
    return collective.all_reduce(tensor, dist.ReduceOp.AVG)


def later(collective: zenc.Collective, tensor: torch.Tensor) -> Work:
    return collective.all_reduce(tensor, "mean", async_op=True)


def either(collective: zenc.Collective, tensor: torch.Tensor, async_op: bool) -> torch.Tensor | Work:
    return collective.all_reduce(tensor, async_op=async_op)


def attached(model: DistributedDataParallel) -> zenc.Attachment:
    return zenc.attach(model, "balanced", params={"seed": 7})


def observed(model: DistributedDataParallel) -> zenc.DryRun:
    return zenc.attach(model, dry_run=True)


def attached_or_observed(model: DistributedDataParallel, dry_run: bool) -> zenc.Attachment | zenc.DryRun:
    return zenc.attach(model, dry_run=dry_run)
