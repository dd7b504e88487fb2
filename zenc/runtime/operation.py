"""The operations of an all-reduce: "sum" and "mean", which torch calls ReduceOp.SUM and ReduceOp.AVG."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch.distributed as dist

from zenc.errors import Diagnostic, TensorError

Operation = Literal["sum", "mean"]
OPERATIONS: tuple[Operation, ...] = ("sum", "mean")
OpLike: TypeAlias = "Operation | dist.ReduceOp | dist.ReduceOp.RedOpType"
"""An operation as users may name it."""


_OF_TORCH: tuple[tuple[object, Operation], ...] = ((dist.ReduceOp.SUM, "sum"), (dist.ReduceOp.AVG, "mean"))


def operation_of(given: OpLike) -> Operation:
    """The operation that ``given`` names; raises TensorError (``unknown-operation``)."""
    if given == "sum" or given == "mean":
        return given
    said = repr(given)
    if isinstance(given, dist.ReduceOp):
        for known, operation in _OF_TORCH:
            if given == known:
                return operation
        said = f"ReduceOp.{getattr(given, 'name', '...')}"
    message = f"unknown operation {said}; one of {', '.join(OPERATIONS)}, or ReduceOp.SUM and ReduceOp.AVG"
    raise TensorError(Diagnostic("unknown-operation", message))
