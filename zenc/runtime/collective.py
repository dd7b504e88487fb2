"""Collective: a compiled scheme on a process group, whose ``all_reduce`` sums a tensor over the ranks.

    Collective = Artifact  Communicator  backend_on: device -> Backend  prepared: PreparedCall*

The artifact is the compiled scheme. The communicator is the group: its ranks, one number for each of their calls, and a
worker that runs the calls of this rank in that order. A backend runs the scheme's plan on one device, and is prepared
once for all tensors of one shape, dtype and operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast, overload

import torch

from zenc.codegen.artifact import Artifact
from zenc.runtime.backend_api import Backend, Operation, OpLike, PreparedCall, operation_of, signature_of
from zenc.runtime.call_queue import Work, on_stream
from zenc.runtime.communicator import Communicator
from zenc.runtime.compression.residual_store import TensorName, no_residual, text_of
from zenc.runtime.layout import Exchangeable, as_tensor, layout_of
from zenc.runtime.ranges import Recorder, of_call
from zenc.runtime.stats import CallReport, CallStats
from zenc.scheme.model import Unit

if TYPE_CHECKING:
    from zenc.runtime.compression.lossy_collective import LossyCollective
    from zenc.runtime.gpu.cuda_graph import CapturedCall
    from zenc.select.online import Decision

Array = TypeVar("Array", bound=Exchangeable)
MOST_PREPARED = 256
"""Prepared calls that are kept, one for each shape; models have far fewer."""
PlannedCall: TypeAlias = Callable[[int, Work], torch.Tensor]
"""Function from the call's number in the group, and its handle, to the sum; the worker runs it."""


class Collective:
    """A compiled scheme on one process group. Made by ``zenc.load``; all ranks of the group make it together.

    Calls of one group run one after another, in the order in which this rank made them; all ranks must make the
    same calls in the same order, as with every collective.
    """

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
        """This process's rank in the group."""
        return self.communicator.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.communicator.size

    @property
    def stats(self) -> CallReport:
        """Statistics of the last finished call of this rank; empty before the first.

        ``bytes_sent``, ``bytes_received``: payload and headers of this rank's messages.
        ``units_in``, ``units_out``: units of this rank's gradient, and of the sum, that hold a value.
        ``density_in``, ``density_out``: the same as a share of ``units``, which are all there are.
        ``phases``: for ``push`` and ``pull``, and ``announce`` before them under ``balanced by holders``: bytes,
        messages, bytes by wire format, seconds, and ``imbalance``, which is the fullest part over the mean part, of
        this rank's own gradient, or of the sum (pull); under ``balanced by encoded`` of the bytes of the sum.
        ``made_again``: in capacity mode there was not room for all, and the call was made exactly.
        ``waited``: seconds of waiting by peer, which are within those of the phases; not on GPUs.
        """
        return self._stats.to_json() if self._stats else {}

    @overload
    def all_reduce(
        self, tensor: Array, op: OpLike = ..., async_op: Literal[False] = ..., rows: bool = ..., name: TensorName = ...
    ) -> Array: ...

    @overload
    def all_reduce(
        self,
        tensor: Exchangeable,
        op: OpLike = ...,
        *,
        async_op: Literal[True],
        rows: bool = ...,
        name: TensorName = ...,
    ) -> Work: ...

    @overload
    def all_reduce(
        self, tensor: Array, op: OpLike = ..., async_op: bool = ..., rows: bool = ..., name: TensorName = ...
    ) -> Array | Work: ...

    def all_reduce(
        self, tensor: Array, op: OpLike = "sum", async_op: bool = False, rows: bool = False, name: TensorName = ""
    ) -> Array | Work:
        """Sum ``tensor`` over all ranks.

        Args:
            tensor: dense (summed in place and returned) or sparse COO, coalesced or not (a new, coalesced tensor of
                the same shape and sparse dimensions is returned); of float32, float64, float16 or bfloat16, on the
                CPU or a CUDA device. Shape, dtype, layout and kind of device must be the same on all ranks. 16-bit
                sums accumulate in float32 at every merge. An array with DLPack, as of CuPy or NumPy, is a dense
                tensor: it is summed in place, and returned; a ``Work`` ends with a tensor over its memory.
            op: "sum", or "mean", which divides by the number of ranks before it sums, as DDP does; or ReduceOp.SUM and
                ReduceOp.AVG of torch.distributed, which mean the same.
            async_op: return a ``Work`` at once; ``tensor`` is not to be touched until it has ended.
            rows: take the rows of a dense tensor for its units where the scheme's unit is ``auto``, which else takes
                single elements. All ranks must say the same.
            name: what the tensor is called, the same on all ranks. A scheme that chooses among others does so for
                each name and shape; one with ``feedback`` keeps by it what it leaves out. Of a tensor of several
                pieces, one after another, it is a sequence of pairs: the name of each, and its elements or shape.

        Raises:
            TensorError: for a tensor that can't be summed; nothing was sent.
            SynchronisationError: ranks disagree, a peer is gone, or a wait passed its deadline. A dense ``tensor`` has
                its values still, or the sum already; and +0 where it had -0, maybe.
        """
        self.communicator.ensure_healthy()
        summand = as_tensor(tensor)
        call = self._plan_call(summand, operation_of(op), rows, name)
        number, work = self.communicator.next_call(), Work(summand.device)

        def run() -> torch.Tensor:
            with of_call(self.recorder, text_of(name), number):
                return call(number, work)

        job = on_stream(run, summand, async_op)
        if async_op:
            self.communicator.worker.submit(job, work)
            return work
        result = self.communicator.worker.run(job, work)
        return cast(Array, result) if summand is tensor else tensor

    def capturable(self, tensor: torch.Tensor, op: OpLike = "sum", rows: bool = False) -> CapturedCall:
        """An ``all_reduce`` of ``tensor``, of any shape, for a CUDA graph. All ranks ask together.

        On GPUs, with ``capacity`` given to ``zenc.load``.
        """
        from zenc.runtime.gpu.cuda_graph import CapturedCall

        self.communicator.ensure_healthy()
        return CapturedCall(self, as_tensor(tensor), operation_of(op), rows)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The scheme of each tensor, and why, where the scheme chooses among others; else there are none."""
        return ()

    @property
    def keeper(self) -> LossyCollective | None:
        """The collective that keeps what calls leave out, by the names of tensors, where something is left out."""
        return None

    def residual(self, name: str) -> torch.Tensor:
        """A copy of what the calls of ``name`` have left out so far, float32, in the shape of its tensor.

        Of this rank, after all calls that were made before. Raises TensorError (``no-residual``).
        """
        raise no_residual(self.artifact.plan.scheme, name)

    def state_dict(self, together: bool = False) -> dict[str, Any]:
        """The learned state, for a checkpoint: the decisions of a scheme that chooses, as JSON data.

        Of a scheme with ``feedback`` what it has left out, as plain values and tensors. It is a rank's own, to go on
        from on the same rank of as many; ``together`` all ranks ask for sums, from which any number of them goes on.
        Of other schemes, nothing.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``, before the first call, on all ranks.

        Raises CostError (``bad-state``) for what is no state of such a scheme, and TensorError for one of other tensors
        (``other-model``) or of another rank (``other-world``).
        """

    def _plan_call(self, tensor: torch.Tensor, op: Operation, rows: bool, name: TensorName) -> PlannedCall:
        """The call of ``tensor``, for the worker to run; raises TensorError for a tensor that can't be summed.

        ``name`` is for schemes that choose: they decide for each name and shape.
        """
        prepared = self.prepared(tensor, op, rows)

        def run(number: int, work: Work) -> torch.Tensor:
            result, stats = prepared.run(tensor, number)
            if stats is not None:
                self._stats = work.counted = stats
            return result

        return run

    def prepared(self, tensor: torch.Tensor, op: Operation, rows: bool) -> PreparedCall:
        """The common parts of calls with this shape, dtype and operation; raises TensorError as ``layout_of``."""
        sparse_dim = tensor.sparse_dim() if tensor.is_sparse else 0
        key = (tensor.shape, tensor.dtype, tensor.layout, tensor.device, sparse_dim, op, rows)
        prepared = self._prepared.get(key)
        if prepared is None:
            if len(self._prepared) >= MOST_PREPARED:
                self._prepared.clear()
            prepared = self._prepared[key] = self._prepare(tensor, op, rows)
        return prepared

    def _prepare(self, tensor: torch.Tensor, op: Operation, rows: bool) -> PreparedCall:
        unit = self.artifact.plan.unit
        if rows and unit is Unit.AUTO and not tensor.is_sparse:
            unit = Unit.ROW
        layout = layout_of(tensor, unit)
        backend = self.backend_on(tensor.device).prepare(layout)
        divisor = self.size if op == "mean" else 1
        return PreparedCall(self.communicator, layout, backend, signature_of(self._digest, layout, op), divisor)

    def __repr__(self) -> str:
        plan = self.artifact.plan
        return f"<zenc.Collective {plan.scheme} {self._digest[:12]} rank {self.rank} of {self.size}>"
