"""Planned calls: the calls of a plan among the ranks of a group, which are prepared, numbered, run in turn and counted.

A backend runs the plan on one device, and is prepared once for each shape, dtype and operation. The communicator gives
each call a number, and its worker runs them in that order.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Literal, TypeAlias

import torch
import torch.distributed as dist

from zenc.codegen.artifact import Artifact
from zenc.errors import Diagnostic, SynchronisationError, TensorError
from zenc.plan.ir import PhaseKind
from zenc.runtime.backend_api import AgreedOwners, Announced, Backend, Call, Part, Prepared
from zenc.runtime.call.call_queue import Touched, Turn, Work, is_here, on_stream, touched_by
from zenc.runtime.call.layout import Layout, in_plain_surroundings, layout_of
from zenc.runtime.call.ranges import Recorder, of_call, profiling
from zenc.runtime.call.stats import CallStats
from zenc.runtime.cpu.channel import CallHeader
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.lossy.residual_store import TensorName, text_of
from zenc.scheme.model import Unit

if TYPE_CHECKING:
    from zenc.runtime.lossy.losses import CallLosses


Operation = Literal["sum", "mean", "sum of int8", "sum of int16", "sum of int32", "sum of int64", "sum of uint8"]
"""Integers of each dtype have an operation of their own, as they are carried by floating-point numbers."""
NamedOperation = Literal["sum", "mean"]
OPERATIONS: tuple[NamedOperation, ...] = ("sum", "mean")
OpLike: TypeAlias = "NamedOperation | dist.ReduceOp | dist.ReduceOp.RedOpType"
"""An operation as users may name it."""
_OF_TORCH: tuple[tuple[object, NamedOperation], ...] = ((dist.ReduceOp.SUM, "sum"), (dist.ReduceOp.AVG, "mean"))


def operation_of(given: OpLike) -> NamedOperation:
    """Return the operation that ``given`` names; raises TensorError (``unknown-operation``)."""
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
    """The common parts of calls.

    Only ranks of one call share the 64-bit ``signature``, and values are divided by ``divisor``.
    """

    communicator: Communicator
    layout: Layout
    prepared: Prepared
    signature: int
    divisor: int
    name: str = ""

    def named(self, name: TensorName) -> PreparedCall:
        """Return this call with the ``name`` of its tensor, which all ranks compare; "" is no name."""
        text = name if isinstance(name, str) else text_of(name)
        return replace(self, signature=self.signature ^ _digest_of(text), name=text) if name else self

    def start(self, number: int, losses: CallLosses | None = None) -> Call:
        """Begin call ``number`` of the group, of ranks with the same salt of ``losses``."""
        if losses is None:
            return self.prepared.start(CallHeader(number, self.signature, self.layout.units))
        return self.prepared.start(CallHeader(number, self.signature ^ losses.salt, self.layout.units), losses)

    def announce(self, units: torch.Tensor, number: int, turn: Turn) -> Announced:
        """Return the owners of the ``units`` [n] int64 of all ranks, and the statistics; None without elements.

        It runs on the worker's ``turn``; a call that fails here breaks the communicator.
        """
        self.communicator.ensure_healthy()
        if not self.layout.units or not self.layout.width:
            return None
        call = self.prepared.start_announce(CallHeader(number, self.signature, self.layout.units))
        try:
            return call.announce(units, turn), call.stats
        except BaseException as error:
            self.communicator.call_failed(error, call, turn)
            raise

    def _start_announced(self, number: int, owners: AgreedOwners) -> Call:
        return self.prepared.start_announced(CallHeader(number, self.signature, self.layout.units), owners)

    def run(
        self,
        tensor: torch.Tensor,
        number: int,
        turn: Turn,
        losses: CallLosses | None = None,
        owners: AgreedOwners | None = None,
    ) -> tuple[torch.Tensor, CallStats | None]:
        """Return the sum of ``tensor``, in its shape, and the statistics, which are None without elements.

        It runs on the worker's ``turn``. With the ``owners`` of announced units it has the next number, too. A call
        that fails here breaks the communicator: peers wait for it.
        """
        communicator, layout = self.communicator, self.layout
        communicator.ensure_healthy()
        if not layout.units or not layout.width:
            return (tensor.coalesce() if layout.is_sparse else tensor), None
        started = time.perf_counter()
        call = self.start(number, losses) if owners is None else self._start_announced(number, owners)
        try:
            found = call.reduce(tensor, self.divisor, turn)
        except BaseException as error:  # an interrupted call leaves peers waiting just the same
            told = self._with_tensor(error)
            communicator.call_failed(told, call, turn)
            if told is error:
                raise
            raise told from error
        seconds = time.perf_counter() - started, found.seconds_pack, found.seconds_expand
        counted = number, layout, communicator.transport.size, found.counts_in, found.counts_out, call.stats
        return found.tensor, CallStats(*counted, *seconds, found.made_again, found.waited)

    def _with_tensor(self, error: BaseException) -> BaseException:
        """Return ``error`` with this rank's tensor, where others are in another call: they have only digests of it."""
        if not isinstance(error, SynchronisationError) or error.diagnostics[0].id != "different-calls":
            return error
        layout, called = self.layout, repr(self.name) if self.name else "a tensor without a name"
        note = f"this rank is at {called}, of shape {tuple(layout.shape)} and {layout.dtype}"
        return SynchronisationError([replace(each, notes=(*each.notes, note)) for each in error.diagnostics])


@lru_cache(maxsize=4096)
def _digest_of(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


def signature_of(plan: str, layout: Layout, op: Operation, part: Part = None) -> int:
    """Return the signature in the headers of a call under the plan of digest ``plan``, or a ``part`` of it: 64 bits."""
    whole = plan, tuple(layout.shape), layout.sparse_dim, layout.dtype_name, op
    meaning = whole if part is None else (*whole, part.value if isinstance(part, PhaseKind) else part.name)
    return int.from_bytes(hashlib.sha256(repr(meaning).encode()).digest()[:8], "little")


MOST_PREPARED = 256
"""Prepared calls that are kept, one for each shape; models have far fewer."""
PlannedCall: TypeAlias = Callable[[int, Work], torch.Tensor]
"""Function from the call's number in the group, and its handle, to the sum; the worker runs it."""


class PlannedCalls:
    """Calls of the plan of ``artifact`` among the ranks of ``communicator``."""

    def __init__(
        self, artifact: Artifact, communicator: Communicator, backend_on: Callable[[torch.device], Backend]
    ) -> None:
        self.artifact = artifact
        self.backend_on = backend_on
        self.communicator = communicator
        """The ranks of its group, which all collectives of that group share."""
        self.recorder: Recorder | None = None
        """The recorder of the ranges of calls, if there is one."""
        self._digest = artifact.plan.digest
        self._prepared: dict[tuple[object, ...], PreparedCall] = {}
        self._stats: CallStats | None = None

    @property
    def rank(self) -> int:
        """Rank of this process in the group."""
        return self.communicator.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.communicator.size

    def perform(
        self, call: PlannedCall, tensor: torch.Tensor, name: TensorName, async_op: bool, announced: str = ""
    ) -> torch.Tensor | Work:
        """Run ``call`` on ``tensor``, of any shape, announced ``by``, after those before.

        Return its result or handle.
        """
        number, worker = self.communicator.next_call(not async_op), self.communicator.worker
        work = Work(tensor.device, Turn(None, self.communicator.ensure_healthy))
        if announced:
            self.communicator.next_call()  # the number of the call in its place, should a rank have other units
        work.turn.watched = self.recorder is not None or profiling()
        run = partial(self._called, call, number, work, name)

        def queued() -> Callable[[], torch.Tensor]:
            own = touched_by(tensor, frozenset((announced,))) if announced else self._touched(tensor, name)
            work.turn.touched = own
            return on_stream(run, tensor, async_op, work if async_op else None)

        if async_op:
            worker.submit(queued(), work)
            return work
        try:
            return worker.run(run if is_here(tensor) else queued(), work, queued)
        finally:
            worker.caller = 0

    def _called(self, call: PlannedCall, number: int, work: Work, name: TensorName) -> torch.Tensor:
        """Return the result of ``call``; any failure breaks the communicator: peers wait, or have a sum."""
        try:
            if not work.turn.watched:
                return call(number, work)
            with of_call(self.recorder, text_of(name), number):
                return call(number, work)
        except BaseException as error:
            if self.communicator.broken is None:
                self.communicator.call_failed(error, None, work.turn)
            raise

    def _touched(self, tensor: torch.Tensor, name: TensorName) -> Touched | None:
        """Return what a call of ``tensor`` changes; None where it has to be alone."""
        return None if tensor.is_cuda else touched_by(tensor, frozenset())

    def counting(self, run: Callable[[int, Turn], tuple[torch.Tensor, CallStats | None]]) -> PlannedCall:
        """Return ``run``, of tensors of any shape, leaving its statistics in the call's handle and in ``stats``."""

        def counted(number: int, work: Work) -> torch.Tensor:
            result, stats = run(number, work.turn)
            if stats is not None:
                self._stats = work.counted = stats
            return result

        return counted

    def prepared(self, tensor: torch.Tensor, op: Operation, rows: bool, part: Part = None) -> PreparedCall:
        """Return the common parts of calls with this shape, dtype and operation; raises TensorError as ``layout_of``.

        ``part``: of calls that push or pull alone, or round on the way.
        """
        sparse_dim = tensor.sparse_dim() if tensor.is_sparse else 0
        key = (tensor.shape, tensor.dtype, tensor.layout, tensor.device, sparse_dim, op, rows and not sparse_dim, part)
        prepared = self._prepared.get(key)
        if prepared is None:
            if len(self._prepared) >= MOST_PREPARED:
                self._prepared.clear()
            make = partial(self._prepare, tensor, op, rows, part)
            prepared = self._prepared[key] = in_plain_surroundings(make)  # it is kept
        return prepared

    def _prepare(self, tensor: torch.Tensor, op: Operation, rows: bool, part: Part) -> PreparedCall:
        unit = self.artifact.plan.unit
        if rows and unit is Unit.AUTO and not tensor.is_sparse:
            unit = Unit.ROW
        layout = layout_of(tensor, unit)
        backend = self.backend_on(tensor.device).prepare(layout, part)
        divisor = self.size if op == "mean" else 1
        return PreparedCall(self.communicator, layout, backend, signature_of(self._digest, layout, op, part), divisor)
