"""The hook that communicates nothing: what a step takes at the least."""

# No "from __future__ import annotations" here: DDP compares the annotations of a hook with its own classes.
import logging

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

log = logging.getLogger("zenc")


def noop_hook(state: dist.ProcessGroup | None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The bucket's buffer as it is, in its shape: ``ddp.register_comm_hook(None, zenc.noop_hook)``, to measure a bound.

    A step with this hook takes what it would if synchronisation took no time; no scheme can do better. Nothing is
    learned in such steps: the ranks' models drift apart. Throw the model away afterwards.
    """
    if bucket.index() == 0 and not _told and dist.get_rank(state) == 0:
        _told.append(True)
        log.warning("noop_hook: gradients are not synchronised; use this model for nothing but timing")
    buffer = bucket.buffer()
    on_gpu: list[int | str | torch.device] = [buffer.device] if buffer.is_cuda else []
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=on_gpu)
    future.set_result(buffer)
    return future


_told: list[bool] = []
