"""The slot of a DDP model's communication hook, which can't be removed: its tenant is a state, or nobody.

DDP can't let go of a hook. What is registered is therefore a Slot, whose tenant may go, and another one come; without
a tenant gradients go DDP's own way, as if there was no hook.
"""

# No "from __future__ import annotations" here: DDP compares the annotations of a hook with its own classes.
from typing import Any, Protocol, TypeAlias, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from zenc.errors import Diagnostic, SchemeError, first_line

Averaged: TypeAlias = torch.futures.Future[torch.Tensor]
"""The buffer of a bucket, averaged over the ranks."""


class Tenant(Protocol):
    """An owner of the hook: averages the gradients of a bucket over the ranks."""

    def reduce(self, bucket: GradBucket) -> Averaged:
        """The future average of the bucket's buffer, with its shape, dtype and layout."""


class Slot:
    """The hook that DDP has; ``tenant`` averages over ``group``. A copied or unpickled one is inert."""

    def __init__(self, group: dist.ProcessGroup | None = None, tenant: Tenant | None = None) -> None:
        self.group, self.tenant = group, tenant
        self.reducer: object = None
        """DDP's, which has this hook; a copied model has another one."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Slot, ()


def own_way(bucket: GradBucket, group: dist.ProcessGroup | None) -> Averaged:
    """DDP's average without a hook, in the buffer's shape: divide by the ranks, and all-reduce; sparse as such."""
    return allreduce_hook(cast(dist.ProcessGroup, group), bucket)  # takes None for all ranks


def attached_hook(slot: Slot, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average ``bucket``'s buffer over the ranks, in its shape, by the tenant of ``slot``, or DDP's own way."""
    return slot.tenant.reduce(bucket) if slot.tenant else own_way(bucket, slot.group)


def take(ddp_model: DistributedDataParallel, tenant: Tenant) -> Slot:
    """Let ``tenant`` average the gradients of ``ddp_model``.

    Raises SchemeError (``hook-taken``) if something else does.
    """
    for hook, slot in ddp_model._comm_hooks:
        if hook is attached_hook and isinstance(slot, Slot) and slot.reducer is ddp_model.reducer and not slot.tenant:
            slot.tenant = tenant
            return slot
    slot = Slot(ddp_model.process_group, tenant)
    try:
        ddp_model.register_comm_hook(slot, attached_hook)
    except RuntimeError as error:
        message = "this model has a communication hook already; DDP takes one"
        help = "attach once, before any register_comm_hook; handle.detach() makes room for another scheme"
        raise SchemeError(Diagnostic("hook-taken", message, notes=(first_line(error),), help=help)) from error
    slot.reducer = ddp_model.reducer
    return slot
