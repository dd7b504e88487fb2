"""Jobs under way: one worker a communicator runs them in the order in which they were made; a ``Work`` is a call.

On a GPU a call that its caller waits for runs on the caller's current stream. One that goes on meanwhile runs on a
stream of its own, behind what the caller's had been given when it was made. The allocator must know of every stream
that uses a tensor, or it gives the memory to others too early.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeVar

import torch

from zenc.errors import Diagnostic, SynchronisationError
from zenc.runtime.stats import CallReport, CallStats


def on_stream(call: Callable[[], T], tensor: torch.Tensor, asynchronous: bool) -> Callable[[], T]:
    """``call`` on the right stream of the device of ``tensor``, of any shape, whichever thread runs it."""
    if not tensor.is_cuda:
        return call
    device, current = tensor.device, torch.cuda.current_stream(tensor.device)
    stream = _own_stream(device) if asynchronous else current
    ready = current.record_event()

    def run() -> T:
        with torch.cuda.device(device), torch.cuda.stream(stream):
            stream.wait_event(ready)
            used_by(tensor, stream)
            return call()

    return run


@cache
def _own_stream(device: torch.device) -> torch.cuda.Stream:
    return new_stream(device)


def new_stream(device: torch.device) -> torch.cuda.Stream:
    """A stream of the GPU ``device``; torch leaves its constructor untyped."""
    made: Callable[[torch.device], torch.cuda.Stream] = torch.cuda.Stream
    return made(device)


def record_on_current_stream(result: torch.Tensor) -> torch.Tensor:
    """``result``, of any shape, of a call that has ended, for use on the current stream."""
    if result.is_cuda:
        used_by(result, torch.cuda.current_stream(result.device))
    return result


def used_by(tensor: torch.Tensor, stream: torch.cuda.Stream) -> None:
    """Tell the allocator that ``stream`` uses ``tensor``, of any shape."""
    for piece in (tensor._indices(), tensor._values()) if tensor.is_sparse else (tensor,):
        piece.record_stream(stream)


log = logging.getLogger("zenc")

CPU = torch.device("cpu")
T = TypeVar("T")


class Job(Generic[T]):
    """A function to be run once, by whichever thread has the turn, and what it ended with."""

    _result: T

    def __init__(self) -> None:
        self._ended = False
        self._latch = threading.Lock()  # locked until it has ended; a threading.Event costs far more to make
        self._latch.acquire()
        self._error: BaseException | None = None
        self._listeners: list[Callable[[Job[T]], None]] = []
        self._lock = threading.Lock()

    def is_completed(self) -> bool:
        """Whether it has ended, well or not."""
        return self._ended

    def wait(self, timeout: float | None = None) -> T:
        """The result; raises the error that it ended with, or SynchronisationError after ``timeout`` seconds."""
        if not self._ended:
            if not self._latch.acquire(timeout=-1 if timeout is None else timeout):
                message = f"the call did not end within {timeout:g} s; it goes on"
                raise SynchronisationError(Diagnostic("deadline", message))
            self._latch.release()
        if self._error is not None:
            raise self._error
        return self._result

    def then(self, listener: Callable[[Job[T]], None]) -> None:
        """Call ``listener(self)`` when it has ended, from the thread that ended it, or at once.

        What a listener raises is logged, and goes no further.
        """
        with self._lock:
            if not self._ended:
                self._listeners.append(listener)
                return
        _tell(listener, self)

    def run(self, function: Callable[[], T]) -> None:
        """Run ``function`` and end with its result or error."""
        try:
            self._result = function()
        except BaseException as error:
            self._error = error
        with self._lock:
            self._ended = True
            self._latch.release()
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            _tell(listener, self)


def _tell(listener: Callable[[Job[T]], None], job: Job[T]) -> None:
    """A listener that fails is its owner's error, and must not end the thread that runs the jobs."""
    try:
        listener(job)
    except Exception:
        log.exception("a callback of a call failed")


class Work(Job[torch.Tensor]):
    """The handle of an asynchronous call, whose tensors are on ``device``."""

    def __init__(self, device: torch.device = CPU) -> None:
        super().__init__()
        self.device = device
        self.counted: CallStats | None = None

    @property
    def stats(self) -> CallReport:
        """As ``Collective.stats``, of this call, once it has ended well."""
        return self.counted.to_json() if self.counted else {}

    def __repr__(self) -> str:
        failed = f"failed with {type(self._error).__name__}" if self._error else "ended"
        return f"<zenc.Work {failed if self._ended else 'under way'} on {self.device}>"

    def wait(self, timeout: float | None = None) -> torch.Tensor:
        """The sum, in the shape of the tensor, for use on the current stream; raises as ``Job.wait``."""
        return record_on_current_stream(super().wait(timeout))

    def get_future(self) -> torch.futures.Future[torch.Tensor]:
        """The result, in the shape of the tensor, as a torch future; waiting for it raises the call's error."""
        devices: list[int | str | torch.device] = [self.device] if self.device.type == "cuda" else []
        future: torch.futures.Future[None] = torch.futures.Future(devices=devices)
        self.then(lambda _: future.set_result(None))
        return future.then(lambda _: self.wait())


class Worker:
    """Runs jobs one at a time, first come, first served, so that all ranks run them in one order.

    A caller that waits anyway runs its function itself when nothing is before it: that saves two changes of thread.
    """

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[Job[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._waiting = 0
        self._turn = threading.Lock()
        self._count = threading.Lock()
        self._name = name
        self._thread: threading.Thread | None = None
        self._running: tuple[int, Job[Any]] | None = None
        """The thread that has the turn, and for what."""

    def run(self, function: Callable[[], T], job: Job[T] | None = None) -> T:
        """Run ``function``, as ``job``, after all that were submitted before, and return its result.

        Raises SynchronisationError (``reentrant-call``) from inside a job or its callback, where it would never end.
        """
        if self._own_turn() is not None:
            message = "a callback of a call can't wait for another call of the same group"
            raise SynchronisationError(Diagnostic("reentrant-call", message, help="use async_op=True there"))
        job = job or Job()
        with self._count:
            alone = self._waiting == 0 and self._turn.acquire(blocking=False)
        if not alone:
            return self.submit(function, job).wait()
        try:
            self._take_turn(job, function)
        finally:
            self._turn.release()
        return job.wait()

    def within(self, part: Callable[[], T]) -> T:
        """Do ``part`` of the job that this thread runs; or, where it runs none, run it as one.

        What all ranks do together, such as to load a scheme, then comes at the same place among their calls. Raises
        SynchronisationError (``reentrant-call``) from a callback: its call has ended, and on other ranks maybe not.
        """
        job = self._own_turn()
        return part() if job is not None and not job.is_completed() else self.run(part)

    def _own_turn(self) -> Job[Any] | None:
        """The call for which this thread has the turn; None if it has not."""
        running = self._running
        return running[1] if running is not None and running[0] == threading.get_ident() else None

    def _take_turn(self, job: Job[T], function: Callable[[], T]) -> None:
        self._running = threading.get_ident(), job
        try:
            job.run(function)
        finally:
            self._running = None

    def submit(self, function: Callable[[], T], job: Job[T] | None = None) -> Job[T]:
        """Queue ``function``, as ``job``, and return at once."""
        job = job or Job()
        with self._count:
            self._waiting += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
                self._thread.start()
        self._jobs.put((job, function))
        return job

    def drain(self, seconds: float) -> bool:
        """Wait until all that was submitted has ended; False if ``seconds`` were not enough."""
        if self._thread is None:
            return True
        self._jobs.put(None)
        self._thread.join(seconds)
        ended = not self._thread.is_alive()
        if ended:
            self._thread = None
        return ended

    def _loop(self) -> None:
        while (entry := self._jobs.get()) is not None:
            with self._turn:
                self._take_turn(*entry)
            with self._count:
                self._waiting -= 1
