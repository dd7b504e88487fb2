"""Sums of integers, by the kernels for floating-point numbers, which add integers exactly as long as they are small.

    carried = values [..., 1] float32 | float64        # the sum of all ranks has at most 24 or 53 bits
            | values [..., 2] float64                  # of int64: the upper 32 bits and the lower ones

A sum that its dtype has no room for wraps, as torch's do. No order of additions changes a bit of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, cast

import torch

from zenc.codegen.artifact import Artifact
from zenc.errors import Diagnostic, TensorError
from zenc.runtime.call.call_queue import Work
from zenc.runtime.call.layout import coalesced
from zenc.runtime.call.planned_calls import Operation, PlannedCall, PlannedCalls
from zenc.runtime.lossy.residual_store import TensorName

PlanCall: TypeAlias = Callable[[torch.Tensor, Operation, bool, TensorName], PlannedCall]
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
"""The dtypes that are carried."""
HALF_BITS = 32
"""Bits of each half of a number of 64."""
EXACT_BITS = {torch.float32: 24, torch.float64: 53}


def call_of(
    calls: PlannedCalls, plan_call: PlanCall, tensor: torch.Tensor, op: Operation, rows: bool, name: TensorName
) -> PlannedCall:
    """Return that of ``calls`` which sums integers, of any shape, by ``plan_call`` for what carries them.

    Raises TensorError (``unsupported-dtype``) for a mean of integers, and where the scheme may lose something of them.
    """
    exact, ranks = _operation_on(tensor, op, calls.artifact), calls.size
    carrier = _sparse_carrier(tensor, ranks) if tensor.is_sparse else _room_for(tensor, ranks)
    call = plan_call(carrier, exact, rows, name)

    def run(number: int, work: Work) -> torch.Tensor:
        if not tensor.is_sparse:  # only now the calls before have ended, of which it may be the result
            _split(tensor.detach(), carrier)
        return _restored(call(number, work), tensor)

    return run


def _operation_on(tensor: torch.Tensor, op: Operation, artifact: Artifact) -> Operation:
    plans = [each.plan for each in (artifact.choosing.candidates.values() if artifact.choosing else (artifact,))]
    lossy = next((plan.scheme for plan in plans if plan.is_lossy or plan.feedback is not None), None)
    if lossy is not None:
        message = f"{lossy} leaves out some of a tensor, and integers such as {tensor.dtype} are summed exactly"
        raise TensorError(Diagnostic("unsupported-dtype", message, help="sum them by a scheme that loses nothing"))
    if op != "sum":
        message = f"integers such as {tensor.dtype} have a sum, and no mean"
        raise TensorError(Diagnostic("unsupported-dtype", message, help='sum them, op="sum", and divide the sum'))
    return cast("Operation", f"sum of {str(tensor.dtype).removeprefix('torch.')}")


def _room_for(values: torch.Tensor, ranks: int) -> torch.Tensor:
    fits = ranks << 8 * values.dtype.itemsize < 1 << EXACT_BITS[torch.float32]
    halves = 2 if values.dtype is torch.int64 else 1
    dtype = torch.float32 if fits else torch.float64
    return torch.empty((*values.shape, halves), dtype=dtype, device=values.device)


def _sparse_carrier(tensor: torch.Tensor, ranks: int) -> torch.Tensor:
    """Return the carrier of ``tensor``, sparse and coalesced, so that no rank adds two numbers to an element."""
    whole = tensor.detach().coalesce()
    values = _room_for(whole._values(), ranks)
    _split(whole._values(), values)
    shape = (*tensor.shape, values.shape[-1])
    return coalesced(whole._indices(), values, shape)


def _restored(total: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return the sum of ``tensor``, integers of any shape, from its carrier's ``total``; in place if it is dense."""
    if not tensor.is_sparse:
        tensor.detach().copy_(_joined(total, tensor.dtype))
        return tensor
    values = _joined(total._values(), tensor.dtype)
    return coalesced(total._indices(), values, tensor.shape)


def _split(values: torch.Tensor, carrier: torch.Tensor) -> None:
    if values.dtype is torch.int64:
        carrier[..., 0].copy_(values >> HALF_BITS)
        carrier[..., 1].copy_(values & (1 << HALF_BITS) - 1)
    else:
        carrier[..., 0].copy_(values)


def _joined(total: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    numbers = total.to(torch.int64)
    return ((numbers[..., 0] << HALF_BITS) + numbers[..., 1]) if dtype is torch.int64 else numbers[..., 0].to(dtype)
