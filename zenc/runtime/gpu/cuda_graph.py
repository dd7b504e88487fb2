"""A call in a CUDA graph: put on the stream while that is captured, and made anew with every replay.

    call = collective.capturable(gradient, "mean")     # all ranks, before the capture
    with torch.cuda.graph(graph):
        ...                                            # the computation of the gradient
        call.enqueue()
    graph.replay()
    total = call.result()                              # after each replay

docs/adr/0024-capacity-mode.md says why the host never waits.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from zenc.errors import Diagnostic, SynchronisationError, TensorError
from zenc.runtime.call.call_queue import on_stream
from zenc.runtime.call.planned_calls import Operation, PlannedCalls
from zenc.runtime.gpu.calls import GpuCall
from zenc.runtime.gpu.device import Arena, GpuDevice
from zenc.wire.constants import CallOutcome


class CapturedCall:
    """``tensor`` summed over the ranks, in capacity mode, whenever a graph is replayed. Made by all ranks together.

    A dense tensor, which has to be contiguous, gets the sum where it is; a sparse one keeps its numbers of indices.
    Its memory, and that of this object, must live as long as the graph.

    Raises TensorError ``not-capturable``, and as ``all_reduce`` does: a first call is made on a copy, to see that the
    ranks agree, and to measure its memory.
    """

    def __init__(
        self,
        calls: PlannedCalls,
        tensor: torch.Tensor,
        op: Operation,
        rows: bool,
        exactly: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        self._tensor, self._exactly = tensor, exactly
        self._communicator, self._prepared = calls.communicator, calls.prepared(tensor, op, rows)
        call = self._opened()
        if not tensor.is_sparse and not tensor.is_contiguous():
            raise _refused("a dense tensor with gaps has no room for its sum", "pass a contiguous one")
        self._arena = _Recorded(call.loaded.gpu)
        self._report = call.loaded.gpu.pinned(1 + 2 * call.loaded.parts)
        self._parts = call.loaded.parts
        self._put(call, tensor.detach().clone(), None)
        self._call: GpuCall | None = None

    def enqueue(self) -> None:
        """Put the call on the current stream, which is captured; nothing is summed before the graph is replayed."""
        call = self._opened()
        self._arena.replay()
        self._put(call, self._tensor, self._report)
        self._call = call

    def result(self) -> torch.Tensor:
        """Return the sum of the last replay, in the shape of the tensor; this waits for it, and all ranks ask for it.

        Where the room was too small the call is made again, exactly; the input must not have changed since. Raises
        SynchronisationError ``deadline``, after which the group is broken.
        """
        call = self._call
        if call is None:
            raise _refused("nothing has been captured", "call enqueue() while a graph is captured, and replay it")
        self._communicator.ensure_healthy()
        loaded = call.loaded
        outcome, why = loaded.library.drain(loaded.communicator, loaded.gpu.stream(), loaded.deadline)
        if outcome is not CallOutcome.DONE:
            raise self._gave_up(call, why)
        if self._report[0]:
            return self._exactly(self._tensor)
        if not self._tensor.is_sparse:
            return self._tensor
        return call.sparse(self._arena, int(self._report[1 + self._parts :].sum())).clone()

    def _opened(self) -> GpuCall:
        call = self._prepared.start(self._communicator.next_call())
        if not isinstance(call, GpuCall) or call.loaded.capacity is None:
            raise _refused("only calls on a GPU in capacity mode can be captured", "zenc.load(..., capacity=0.05)")
        return call

    def _put(self, call: GpuCall, tensor: torch.Tensor, report: torch.Tensor | None) -> None:
        """Make the call, or with a report put it on the stream; in turn with the other calls of its group."""
        communicator, divisor = self._communicator, self._prepared.divisor

        def run() -> None:
            communicator.ensure_healthy()
            try:
                call.run(tensor, None if tensor.is_sparse else tensor, divisor, self._arena.allocate, report)
            except BaseException as error:
                communicator.call_failed(error, call)
                raise

        communicator.worker.run(on_stream(run, tensor, False))

    def _gave_up(self, call: GpuCall, why: str) -> SynchronisationError:
        """Return the error of a replay; ``why`` is CUDA's text, empty if the deadline has passed."""
        loaded = call.loaded
        ended = f"failed: {why}" if why else f"did not end within the deadline of {loaded.deadline:g} s"
        help = "see whether all ranks are alive and replay their graphs equally often; deadline= sets how long to wait"
        message = f"a replay of {loaded.scheme} {ended}"
        error = SynchronisationError(Diagnostic("cuda-failed" if why else "deadline", message, help=help))
        loaded.library.abort_communicator(loaded.communicator)
        self._communicator.abort(error, self)
        return error


class _Recorded(Arena):
    """Memory that a second call of the same shape gets once more, in the order in which the first one asked for it."""

    def __init__(self, gpu: GpuDevice) -> None:
        super().__init__(gpu)
        self._asked: list[tuple[int, int]] = []
        self._again: int | None = None

    def replay(self) -> None:
        self._again = 0

    def allocate(self, user: object, size: int) -> int:
        if self._again is None:
            self._asked.append((size, super().allocate(user, size)))
            return self._asked[-1][1]
        known, address = self._asked[self._again]
        self._again += 1
        return address if known == size else 0


def _refused(message: str, help: str) -> TensorError:
    return TensorError(Diagnostic("not-capturable", message, help=help))
