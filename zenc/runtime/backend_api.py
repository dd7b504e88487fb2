"""Backend interface: prepare(layout) -> start(header) -> reduce(tensor) -> Reduction.

A backend runs one plan on one device. What it prepares serves all calls over tensors of one layout; a ``PreparedCall``
adds what all-reduces of one shape, dtype and operation share. Operations are "sum" and "mean", which torch calls
ReduceOp.SUM and ReduceOp.AVG.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import torch
import torch.distributed as dist

from zenc.errors import Diagnostic, TensorError
from zenc.runtime.communicator import Communicator
from zenc.runtime.compression.losses import CallLosses
from zenc.runtime.cpu.headers import CallHeader
from zenc.runtime.layout import Layout
from zenc.runtime.stats import CallStats, PhaseStats

if TYPE_CHECKING:
    from zenc.runtime.compression.gpu_kernels import GpuCompression
    from zenc.runtime.compression.kernels import CompressionKernels


@dataclass(slots=True)  # not frozen: one is made in every call
class Reduction:
    """The sum, in the layout of the input, and what was counted on the way: occupied units of each part, seconds.

    ``made_again``: there was not room for all in capacity mode. ``waited``: peer -> seconds of waiting for it; None
    where that is not measured.
    """

    tensor: torch.Tensor
    counts_in: list[int]
    counts_out: list[int]
    seconds_pack: float
    seconds_expand: float
    made_again: bool = False
    waited: dict[int, float] | None = None


class Call(Protocol):
    """A call of one rank: the header first, then the tensor."""

    @property
    def stats(self) -> dict[str, PhaseStats]:
        """By phase, in order."""

    def reduce(self, tensor: torch.Tensor, divisor: int) -> Reduction:
        """Sum ``tensor``, of any shape, over all ranks, each value divided by ``divisor`` first; dense in place."""


class Prepared(Protocol):
    """A backend, ready for tensors of one layout."""

    def start(self, header: CallHeader, losses: CallLosses | None = None) -> Call:
        """A call whose messages carry ``header``, and which selects and encodes as ``losses`` says."""


class Backend(Protocol):
    """A plan on one device. ``code``: the library or the GPU that runs it, for logs."""

    code: str

    @property
    def compression(self) -> CompressionKernels | GpuCompression:
        """The kernels of compression for this device, of plans that select or encode."""

    def prepare(self, layout: Layout) -> Prepared:
        """Be ready for tensors of ``layout``; raises TensorError for one that is too large."""


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

    def start(self, number: int, losses: CallLosses | None = None) -> Call:
        """Call ``number`` of the group, of ranks that have the same salt of ``losses``."""
        if losses is None:
            return self.prepared.start(CallHeader(number, self.signature, self.layout.units))
        return self.prepared.start(CallHeader(number, self.signature ^ losses.salt, self.layout.units), losses)

    def run(
        self, tensor: torch.Tensor, number: int, losses: CallLosses | None = None
    ) -> tuple[torch.Tensor, CallStats | None]:
        """The sum of ``tensor``, in its shape, and what was counted; None without elements. On the worker's turn.

        A call that fails here breaks the communicator: peers wait for it.
        """
        communicator, layout = self.communicator, self.layout
        communicator.ensure_healthy()
        if not layout.units or not layout.width:
            return (tensor.coalesce() if layout.is_sparse else tensor), None
        started = time.perf_counter()
        call = self.start(number, losses)
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
