"""Host offload: gradients of a GPU that are summed on the host, by its kernels and over gloo.

    on the GPU's stream     an event: the gradient is there
    on a stream beside it   copy to pinned memory, an event
    on the worker's turn    wait for this event; the call, on the copy
    on that stream again    copy back; a wait for the future waits for this

Pinned memory is kept by shape, and lent to one call at a time.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch

from zenc.runtime.call.call_queue import Work, new_stream, used_by
from zenc.runtime.call.collective import Collective
from zenc.runtime.lossy.residual_store import TensorName
from zenc.torch.bucket import Averaged


class CopyEngine(Protocol):
    """The copies of a device, on a stream of their own."""

    def to_host(self, gradient: torch.Tensor, room: torch.Tensor) -> Any:
        """Begin to copy ``gradient`` to ``room``, of one shape; return the event for ``wait``."""

    def wait(self, event: Any) -> None:
        """Wait until the copy that gave ``event`` has ended."""

    def back(self, room: torch.Tensor, gradient: torch.Tensor) -> None:
        """Copy ``room`` to ``gradient``, of one shape, before later work on the current stream."""

    def room(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return pinned memory of the shape and dtype of ``gradient``."""


class CudaCopies:
    """Copies of the GPU ``device``, on a stream beside that which computes."""

    def __init__(self, device: torch.device) -> None:
        self._stream = new_stream(device)

    def to_host(self, gradient: torch.Tensor, room: torch.Tensor) -> torch.cuda.Event:
        """Begin to copy ``gradient`` to ``room``, of one shape, after the current stream's work; return the event."""
        self._stream.wait_stream(torch.cuda.current_stream(gradient.device))
        with torch.cuda.stream(self._stream):
            used_by(gradient, self._stream)
            room.copy_(gradient, non_blocking=True)
            event: torch.cuda.Event = self._stream.record_event()
        return event

    def wait(self, event: torch.cuda.Event) -> None:
        """Let the host wait for ``event``."""
        event.synchronize()

    def back(self, room: torch.Tensor, gradient: torch.Tensor) -> None:
        """Copy ``room`` to ``gradient``, of one shape; the current stream waits for it."""
        with torch.cuda.stream(self._stream):
            gradient.copy_(room, non_blocking=True)
        self._stream.synchronize()  # the room is lent to another call next
        torch.cuda.current_stream(gradient.device).wait_stream(self._stream)

    def room(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return pinned memory of the shape and dtype of ``gradient``."""
        return torch.empty_like(gradient, device="cpu", pin_memory=True)


class HostOffload:
    """Averages of gradients of a GPU by collectives of the host; ``copies`` brings them there and back."""

    def __init__(self, copies: CopyEngine) -> None:
        self._copies = copies
        self._free: dict[tuple[torch.Size, torch.dtype], list[torch.Tensor]] = defaultdict(list)
        self._lock = threading.Lock()

    def average(
        self,
        collective: Collective,
        gradient: torch.Tensor,
        name: TensorName,
        rows: bool,
        counted: Callable[[Work], None],
    ) -> tuple[Work, Averaged]:
        """Queue the average of ``gradient``, of any shape, as ``ActiveRule.average`` does, a dense one in place."""
        if gradient.is_sparse:
            return _sparse_average(collective, gradient, name, counted)
        room = self._lent(gradient)
        event = self._copies.to_host(gradient, room)
        collective.communicator.worker.submit(partial(self._copies.wait, event))
        work = collective.all_reduce(room, "mean", async_op=True, rows=rows, name=name)
        work.then(lambda _: counted(work))
        on_gpu: list[int | str | torch.device] = [gradient.device] if gradient.is_cuda else []
        ended: torch.futures.Future[None] = torch.futures.Future(devices=on_gpu)
        work.then(lambda _: ended.set_result(None))

        def returned(_: torch.futures.Future[None]) -> torch.Tensor:
            self._copies.back(work.wait(), gradient)
            with self._lock:  # after a failure gloo may yet write to it, so it is never lent again
                self._free[room.shape, room.dtype].append(room)
            return gradient

        return work, ended.then(returned)

    def _lent(self, gradient: torch.Tensor) -> torch.Tensor:
        with self._lock:
            free = self._free[gradient.shape, gradient.dtype]
            if free:
                return free.pop()
        return self._copies.room(gradient)


def _sparse_average(
    collective: Collective, gradient: torch.Tensor, name: TensorName, counted: Callable[[Work], None]
) -> tuple[Work, Averaged]:
    """Queue the average of a sparse ``gradient``, of any shape, whose indices and values are copied at once."""
    device = gradient.device
    work = collective.all_reduce(gradient.coalesce().cpu(), "mean", async_op=True, name=name)
    work.then(lambda _: counted(work))
    ended: torch.futures.Future[None] = torch.futures.Future(devices=[device] if device.type == "cuda" else [])
    work.then(lambda _: ended.set_result(None))
    return work, ended.then(lambda _: work.wait().to(device))
