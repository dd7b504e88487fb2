"""Prepared calls: what all-reduces of tensors of one shape, dtype and operation share, and how one is made.

The operations are "sum" and "mean", which torch calls ReduceOp.SUM and ReduceOp.AVG.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
import torch.distributed as dist

from zenc.errors import Diagnostic, TensorError
from zenc.runtime.backend_api import Call, Prepared
from zenc.runtime.communicator import Communicator
from zenc.runtime.cpu.headers import CallHeader
from zenc.runtime.layout import Layout
from zenc.runtime.stats import CallStats

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


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """``signature``: 64 bits that only ranks of one call share. ``divisor``: of each value, before it is summed."""

    communicator: Communicator
    layout: Layout
    prepared: Prepared
    signature: int
    divisor: int

    def start(self, number: int) -> Call:
        """Call ``number`` of the group."""
        return self.prepared.start(CallHeader(number, self.signature, self.layout.units))

    def run(self, tensor: torch.Tensor, number: int) -> tuple[torch.Tensor, CallStats | None]:
        """The sum of ``tensor``, in its shape, and what was counted; None without elements. On the worker's turn.

        A call that fails here breaks the communicator: peers wait for it.
        """
        communicator, layout = self.communicator, self.layout
        communicator.ensure_healthy()
        if not layout.units or not layout.width:
            return (tensor.coalesce() if layout.is_sparse else tensor), None
        started = time.perf_counter()
        call = self.start(number)
        try:
            found = call.reduce(tensor, self.divisor)
        except BaseException as error:  # an interrupted call leaves peers waiting just the same
            communicator.call_failed(error, call)
            raise
        seconds = time.perf_counter() - started, found.seconds_pack, found.seconds_expand
        counted = number, layout, communicator.size, found.counts_in, found.counts_out, call.stats
        return found.tensor, CallStats(*counted, *seconds, found.made_again, found.waited)


def signature_of(plan: str, layout: Layout, op: Operation) -> int:
    """The signature in the headers of a call under the plan of digest ``plan``: 64 bits."""
    meaning = plan, tuple(layout.shape), layout.sparse_dim, layout.dtype_name, op
    return int.from_bytes(hashlib.sha256(repr(meaning).encode()).digest()[:8], "little")
