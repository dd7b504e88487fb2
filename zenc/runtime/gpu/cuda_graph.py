"""Calls in CUDA graphs: put on the stream while that is captured, and made anew with every replay.

    call = collective.capturable(gradient, "mean")     # all ranks, before the capture
    with torch.cuda.graph(graph):
        ...                                            # the computation of the gradient
        call.enqueue()
    graph.replay()
    total = call.result()                              # after each replay

docs/adr/0024-capacity-mode.md says why the host never waits. Small dense calls are replayed by themselves once the room
that they learned has been enough, from graphs with memory of their own: docs/adr/0121-replays-by-themselves.md.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from zenc.common.environment import is_on
from zenc.errors import Diagnostic, TensorError
from zenc.runtime.backend_api import Reduction
from zenc.runtime.call.call_queue import Turn, on_stream
from zenc.runtime.call.layout import Layout
from zenc.runtime.call.planned_calls import Operation, PlannedCalls
from zenc.runtime.call.ranges import is_watched, within
from zenc.runtime.gpu.call_args import CallArgs, failure_of
from zenc.runtime.gpu.calls import GpuCall, PhasesCounted
from zenc.runtime.gpu.capacity import RELEARNED
from zenc.runtime.gpu.device import Arena, GpuDevice
from zenc.wire.constants import CallOutcome

MOST_STAGED = 1 << 22
"""Bytes of the largest gradient that is replayed by itself: two copies of more take as long as the launches spared."""
MOST_TOGETHER = 1 << 26
"""Bytes of all gradients of a scheme that are replayed by themselves: graphs have memory of their own."""
MOST_CAPTURES = 8
"""Captures of a layout; if it needs more its calls are made plainly."""


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
        call.call.stream = loaded.gpu.stream()
        if loaded.library.replay(call.call) is not CallOutcome.DONE:
            error = failure_of(call.call, loaded.scheme)
            self._communicator.call_failed(error, self)
            raise error
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


class OwnGraph:
    """A graph of calls like ``call``, on memory that the gradient is copied into and the sum out of.

    ``is_ready`` is False where there can't be one. Raises as the call does, which then has failed.
    """

    def __init__(self, call: GpuCall, divisor: int) -> None:
        loaded, layout = call.loaded, call.layout
        self.room, self.is_ready = call.room, False
        self._call = GpuCall(loaded, layout, call.cut, call.envelope, call.workspace)
        self._arena, self.size = Arena(loaded.gpu), layout.nbytes
        if not is_on("ZENC_GPU_GRAPHS") or is_on("ZENC_GPU_CHECK"):
            return
        try:
            self._report = loaded.gpu.pinned(1 + 2 * loaded.parts)
            self._staged = loaded.gpu.memory(self.size).view(layout.dtype).view(layout.shape)
        except (MemoryError, RuntimeError):  # torch.OutOfMemoryError is a RuntimeError
            return
        self._handle = self._call.capture(self._staged, divisor, self._arena, self._report)
        self.is_ready = self._handle != 0
        if self.is_ready:
            weakref.finalize(self, loaded.library.release_replay, self._handle)

    @property
    def args(self) -> CallArgs:
        """The arguments and statistics of the last replay."""
        return self._call.call

    def sum(self, tensor: torch.Tensor, number: int) -> tuple[list[int], list[int]] | None:
        """Sum ``tensor``, dense, of the layout's shape, in place, as call ``number``.

        Return the occupied units of each part of it and of the sum, [parts] each; or None where a rank had no room,
        and the tensor is as it was. Raises SynchronisationError and TensorError.
        """
        loaded, args, given = self._call.loaded, self.args, tensor.detach()
        whole = given.contiguous()
        args.number, args.stream = number, loaded.gpu.stream()
        if is_watched():
            with within("kernels and messages"):
                outcome = loaded.library.replay(args, self._handle, whole.data_ptr())
        else:
            outcome = loaded.library.replay(args, self._handle, whole.data_ptr())
        if outcome is not CallOutcome.DONE:
            raise failure_of(args, loaded.scheme)
        again, *counts = self._report.tolist()
        if again:
            return None
        if whole.data_ptr() != given.data_ptr():
            given.copy_(whole)
        return counts[: loaded.parts], counts[loaded.parts :]


class OwnGraphs:
    """The graphs of a scheme's calls, by signature, since tensors have names. All ranks have the same."""

    def __init__(self) -> None:
        self._held: dict[int, OwnGraph] = {}
        self._captures: Counter[Layout] = Counter()

    def of(self, call: GpuCall) -> OwnGraph | None:
        """Return the graph for ``call`` in its room; None: it is to be made plainly."""
        held = self._held.get(call.envelope.signature)
        return held if held is not None and held.room is call.room else None

    def ended(self, call: GpuCall, divisor: int) -> None:
        """Make a graph for calls like ``call``, which was made plainly and had room, if all ranks can.

        Raises as the call does.
        """
        layout, signature = call.layout, call.envelope.signature
        self._held.pop(signature, None)
        together = sum(each.size for each in self._held.values()) + layout.nbytes
        if self._captures[layout] == MOST_CAPTURES or together > MOST_TOGETHER:
            return
        self._captures[layout] += 1
        made = OwnGraph(call, divisor)
        assert call.loaded.greatest is not None, "only calls that learn are replayed"
        if any(call.loaded.greatest([0.0 if made.is_ready else 1.0])):
            self._captures[layout] = MOST_CAPTURES
        else:
            self._held[signature] = made


class ReplayedCall(GpuCall):
    """A call that one of ``graphs`` makes, if it can."""

    def __init__(self, graphs: OwnGraphs, *common: Any) -> None:
        super().__init__(*common)
        self._graphs = graphs

    def reduce(self, tensor: torch.Tensor, divisor: int, turn: Turn) -> Reduction:
        """Return the sum of ``tensor``, of any shape, as other calls do; without room it is made again, exactly."""
        graph, learner, number = self._graphs.of(self), self.workspace.learner, self.envelope.call
        assert learner is not None, "only calls that learn are replayed"
        counts = None if graph is None else graph.sum(tensor, number)
        if graph is not None and counts is not None:
            if not learner.is_sure or number % RELEARNED == 0:
                learner.ended(False, *counts, self.cut.part_slots)
            self._counted = PhasesCounted(graph.args, self.loaded)
            self.workspace.blocks.append(self.block)
            return Reduction(tensor, *counts, 0.0, 0.0)
        if graph is not None:
            self.room, self.had_no_room = None, True
        found = super().reduce(tensor, divisor, turn)
        if self.room is learner.room is not None:
            self._graphs.ended(self, divisor)
        return found


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
