"""Slots: the one communication hook that DDP takes, and its tenant, which averages gradients."""

import weakref
from typing import Any, Protocol, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from zenc.errors import Diagnostic, SchemeError, TensorError, first_line
from zenc.torch.bucket import Averaged

# No "from __future__ import annotations" here: DDP compares the annotations of a hook with its own classes.


class Tenant(Protocol):
    """A tenant of the hook, which averages the gradients of a bucket over the ranks."""

    def reduce(self, bucket: GradBucket) -> Averaged:
        """Return the future average of the bucket's buffer, with its shape, dtype and layout."""


class Slot:
    """The hook that DDP has, and can't let go of; ``tenant`` averages over ``group``, and may go or be another one.

    Without a tenant gradients go DDP's own way. A copied or unpickled slot is inert.
    """

    def __init__(self, group: dist.ProcessGroup | None = None, tenant: Tenant | None = None) -> None:
        self.group, self.tenant = group, tenant
        self.reducer: weakref.ref[object] | None = None
        """The reducer of DDP: a weak reference, since it holds this hook. A copied model has another reducer."""
        self.wrapper: weakref.ref[DistributedDataParallel] | None = None
        """The model that has the hook."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Slot, ()

    def is_of(self, ddp_model: DistributedDataParallel) -> bool:
        """Return whether the slot is the hook of this very wrapper, and not of a copy."""
        return self.reducer is not None and self.reducer() is ddp_model.reducer

    def let_go(self, other: DistributedDataParallel) -> None:
        """Detach the wrapper of this hook from its parameters, unless it is ``other``, which has them now.

        Its reducer watches their gradients as long as it lives, and still waits for those of a step that failed.
        """
        wrapper = self.wrapper() if self.wrapper else None
        if wrapper is not other:
            self.reducer = None
            if wrapper is not None:
                vars(wrapper).update(reducer=None, logger=None)


def own_way(bucket: GradBucket, group: dist.ProcessGroup | None) -> Averaged:
    """Return DDP's average without a hook, in the buffer's shape, sparse as such: divide by ranks, and all-reduce.

    Raises TensorError (``no-sparse-sums``) where the group has none of sparse tensors, as one of NCCL.
    """
    try:
        return allreduce_hook(cast(dist.ProcessGroup, group), bucket)  # takes None for all ranks
    except RuntimeError as error:
        if not bucket.buffer().is_sparse:
            raise
        message = "a sparse gradient is left to DDP, whose group has no sums of sparse tensors"
        help = "let a scheme sum it, without dry_run= or exclude=; or wrap the model over a group of gloo"
        raise TensorError(Diagnostic("no-sparse-sums", message, notes=(first_line(error),), help=help)) from error


def attached_hook(slot: Slot, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average ``bucket``'s buffer over the ranks, in its shape, by the tenant of ``slot``, or DDP's own way.

    Raises TensorError (``unknown-operation``) in a ``join`` that divides by fewer ranks than all.
    """
    wrapper = slot.wrapper() if slot.wrapper else None
    if wrapper is not None and not vars(wrapper).get("_divide_by_initial_world_size", True):
        message = "join(divide_by_initial_world_size=False) is not for hooks of DDP, which divide by all ranks"
        raise TensorError(Diagnostic("unknown-operation", message, help="leave it out"))
    return slot.tenant.reduce(bucket) if slot.tenant else own_way(bucket, slot.group)


def slot_of(ddp_model: DistributedDataParallel) -> Slot | None:
    """Return the slot of ``ddp_model`` itself, rather than of the model that it is a copy of; None without one."""
    slots = [slot for _, slot in ddp_model._comm_hooks if isinstance(slot, Slot) and slot.is_of(ddp_model)]
    return slots[0] if slots else None


def take(ddp_model: DistributedDataParallel, tenant: Tenant) -> Slot:
    """Let ``tenant`` average the gradients of ``ddp_model``.

    Raises SchemeError (``hook-taken``) if something else does.
    """
    if (free := slot_of(ddp_model)) and not free.tenant:
        free.tenant = tenant
        return free
    slot = Slot(ddp_model.process_group, tenant)
    try:
        ddp_model.register_comm_hook(slot, attached_hook)
    except RuntimeError as error:
        message = "this model has a communication hook already; DDP takes one"
        help = "attach once, before any register_comm_hook; handle.detach() makes room for another scheme"
        raise SchemeError(Diagnostic("hook-taken", message, notes=(first_line(error),), help=help)) from error
    slot.reducer, slot.wrapper = weakref.ref(ddp_model.reducer), weakref.ref(ddp_model)
    return slot


def release(ddp_model: DistributedDataParallel, tenant: Tenant) -> None:
    """Let gradients of ``ddp_model`` go DDP's own way again, if ``tenant`` averages them."""
    if (slot := slot_of(ddp_model)) and slot.tenant is tenant:
        slot.tenant = None
