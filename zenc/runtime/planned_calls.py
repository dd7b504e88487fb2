"""Planned calls: the calls of a plan among the ranks of a group, which are prepared, numbered, run in turn and counted.

A backend runs the plan on one device, and is prepared once for each shape, dtype and operation. The communicator gives
each call a number, and its worker runs them in that order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch

from zenc.codegen.artifact import Artifact
from zenc.runtime.backend_api import Backend, Operation, Part, PreparedCall, signature_of
from zenc.runtime.call_queue import Work, is_here, on_stream
from zenc.runtime.compression.residual_store import TensorName, text_of
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.layout import layout_of
from zenc.runtime.plain import in_plain_surroundings
from zenc.runtime.ranges import Recorder, of_call, profiling
from zenc.runtime.stats import CallStats
from zenc.runtime.turns import Touched, Turn, touched_by
from zenc.scheme.model import Unit

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
        number, worker = self.communicator.next_call(), self.communicator.worker
        work = Work(tensor.device, Turn(None, self.communicator.ensure_healthy))
        if announced:
            self.communicator.next_call()  # the number of the call in its place, should a rank have other units
        watched = self.recorder is not None or profiling()
        run = partial(self._in_range, call, number, work, name) if watched else partial(call, number, work)

        def queued() -> Callable[[], torch.Tensor]:
            own = touched_by(tensor, frozenset((announced,))) if announced else self._touched(tensor, name)
            work.turn.touched = own
            return on_stream(run, tensor, async_op)

        if async_op:
            worker.submit(queued(), work)
        return work if async_op else worker.run(run if is_here(tensor) else queued(), work, queued)

    def _in_range(self, call: PlannedCall, number: int, work: Work, name: TensorName) -> torch.Tensor:
        with of_call(self.recorder, text_of(name), number):
            return call(number, work)

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
        key = (tensor.shape, tensor.dtype, tensor.layout, tensor.device, sparse_dim, op, rows, part)
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
