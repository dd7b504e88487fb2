"""Jobs under way: one worker a communicator runs them in the order in which they were made; a ``Work`` is a call.

Calls on CPUs overlap: while one waits for other ranks, the next is packed and sent; each job has a ``Turn``.

On a GPU a call that its caller waits for runs on the caller's current stream. An asynchronous one runs on a stream of
its own, after the work that was on the caller's when it was made. The allocator must know of every stream that uses a
tensor, or it gives the memory to others too early.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Generic, TypeVar

import torch

from zenc.errors import Diagnostic, SynchronisationError
from zenc.runtime.call.layout import in_plain_surroundings
from zenc.runtime.call.stats import CallReport, CallStats


@dataclass(frozen=True, slots=True)
class Touched:
    """The things that a job changes: the state under ``names``, and the memory from ``first`` to before ``end``."""

    names: frozenset[str]
    first: int = 0
    end: int = 0

    def meets(self, other: Touched) -> bool:
        """Return whether both change something in common."""
        return not self.names.isdisjoint(other.names) or (self.first < other.end and other.first < self.end)


def touched_by(tensor: torch.Tensor, names: frozenset[str]) -> Touched:
    """Return the changes of a sum of ``tensor``, of any shape: the tensor itself if dense, and the state by name."""
    if tensor.is_sparse or not tensor.numel():
        return Touched(names)
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return Touched(names, tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size())


class Turn:
    """The turn of one job, used by the thread that runs it.

    ``touched``: compared with other jobs', it decides which this job may run beside; None: beside no other. ``ensure``
    raises where an earlier job has failed, after which this one must not go on.
    """

    def __init__(self, touched: Touched | None = None, ensure: Callable[[], None] = lambda: None) -> None:
        self.touched, self._ensure = touched, ensure
        self.exchanges = 0
        """The exchanges of the job that are still to come."""
        self._before: Turn | None = None
        self._let_next: Callable[[], None] = lambda: None
        self.passed = False
        """True once the next job may have begun."""
        self.watched = True
        """False where nobody watches the ranges of the job."""
        self._over = threading.Lock()  # locked until the job has ended and all have been told; cheaper than an event
        self._over.acquire()

    def begin(self, before: Turn | None, let_next: Callable[[], None]) -> None:
        """Take the turn after ``before``; ``let_next`` lets the next job begin."""
        self._before, self._let_next = before, let_next
        if before and not (self.touched and before.touched and not self.touched.meets(before.touched)):
            self.wait()

    def pass_on(self) -> None:
        """Let the next job begin, at the latest when this one waits for other ranks; do nothing if it may not."""
        if self.touched is not None and not self.passed:
            self.passed = True
            self._let_next()

    def wait(self) -> None:
        """Wait until the job before has ended, well or not."""
        if self._before is not None:
            self._before._over.acquire()
            self._before._over.release()
            self._before = None

    def settle(self) -> None:
        """Wait until the job before has ended well; raises its error if it has not."""
        if self._before is not None:
            self.wait()
            self._ensure()

    def end(self) -> None:
        """End the turn, when the job has ended and all have been told."""
        self._over.release()

    @property
    def exchanges_before(self) -> int:
        """The exchanges that the job before still makes, each of which may take as long as a wait may."""
        return self._before.exchanges if self._before is not None and self._before._over.locked() else 0


def on_stream(
    call: Callable[[], T], tensor: torch.Tensor, asynchronous: bool, work: Work | None = None
) -> Callable[[], T]:
    """Return ``call`` on the right stream of the device of ``tensor``, of any shape, whichever thread runs it.

    Its result may still be copied there when it has ended: the stream that waits for ``work`` is to wait for that.
    """
    if not tensor.is_cuda:
        return call
    device, current = tensor.device, torch.cuda.current_stream(tensor.device)
    stream = _own_stream(device) if asynchronous else current
    ready = current.record_event()

    def run() -> T:
        with torch.cuda.device(device), torch.cuda.stream(stream):
            stream.wait_event(ready)
            used_by(tensor, stream)
            result = call()
            if work is not None:
                work.on_gpu = stream.record_event()
            return result

    return run


def new_stream(device: torch.device) -> torch.cuda.Stream:
    """Return a stream of the GPU ``device``; torch leaves its constructor untyped."""
    made: Callable[[torch.device], torch.cuda.Stream] = torch.cuda.Stream
    return made(device)


_own_stream = cache(new_stream)


def is_here(tensor: torch.Tensor) -> bool:
    """Return whether a call of ``tensor``, of any shape, may run on the caller's current stream as it is."""
    return not tensor.is_cuda or tensor.get_device() == torch._C._cuda_getDevice()


def used_by(tensor: torch.Tensor, stream: torch.cuda.Stream) -> None:
    """Tell the allocator that ``stream`` uses ``tensor``, of any shape."""
    for piece in (tensor._indices(), tensor._values()) if tensor.is_sparse else (tensor,):
        piece.record_stream(stream)


log = logging.getLogger("zenc")

CPU = torch.device("cpu")
T = TypeVar("T")


class Job(Generic[T]):
    """A function to be run once, by whichever thread has the turn, and its result or error."""

    _result: T

    def __init__(self, turn: Turn | None = None) -> None:
        self.turn = turn or Turn()
        """The job's place among the other jobs of its worker."""
        self._ended = False
        self._latch = threading.Lock()  # locked until it has ended; a threading.Event costs far more to make
        self._latch.acquire()
        self._error: BaseException | None = None
        self._listeners: list[Callable[[Job[T]], None]] = []
        self._lock = threading.Lock()

    def is_completed(self) -> bool:
        """Return whether the job has ended, well or not."""
        return self._ended

    def wait(self, timeout: float | None = None) -> T:
        """Return the result; raises the error of the job, or SynchronisationError after ``timeout`` seconds."""
        if not self._ended:
            if not self._latch.acquire(timeout=-1 if timeout is None else timeout):
                message = f"the call did not end within {timeout:g} s; it goes on"
                raise SynchronisationError(Diagnostic("deadline", message))
            self._latch.release()
        if self._error is not None:
            raise self._error
        return self._result

    def then(self, listener: Callable[[Job[T]], None]) -> None:
        """Call ``listener(self)`` when the job has ended, from the thread that ended it, or at once.

        An error of a listener is logged, and goes no further.
        """
        with self._lock:
            if not self._ended:
                self._listeners.append(listener)
                return
        _tell(listener, self)

    def run(self, function: Callable[[], T]) -> None:
        """Run ``function`` and end with its result or error, after the job before."""
        try:
            self._result = function()
        except BaseException as error:
            self._error = error
        self.turn.wait()
        with self._lock:
            self._ended = True
            self._latch.release()
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            _tell(listener, self)


def _tell(listener: Callable[[Job[T]], None], job: Job[T]) -> None:
    """Call a listener, whose failure is its owner's error, and must not end the thread that runs the jobs."""
    try:
        listener(job)
    except Exception:
        log.exception("a callback of a call failed")


class Work(Job[torch.Tensor]):
    """The handle of an asynchronous call, whose tensors are on ``device``."""

    on_gpu: torch.cuda.Event | None = None
    """The end of the call on a stream of its own."""

    def __init__(self, device: torch.device = CPU, turn: Turn | None = None) -> None:
        super().__init__(turn)
        self.device = device
        self.counted: CallStats | None = None

    @property
    def stats(self) -> CallReport:
        """The statistics of this call, like ``Collective.stats``, once it has ended well."""
        return self.counted.to_json() if self.counted else {}

    def __repr__(self) -> str:
        failed = f"failed with {type(self._error).__name__}" if self._error else "ended"
        return f"<zenc.Work {failed if self._ended else 'under way'} on {self.device}>"

    def wait(self, timeout: float | None = None) -> torch.Tensor:
        """Return the sum, in the shape of the tensor, for use on the current stream; raises as ``Job.wait`` does."""
        result = super().wait(timeout)
        if self.on_gpu is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_event(self.on_gpu)
            used_by(result, current)
        return result

    def get_future(self) -> torch.futures.Future[torch.Tensor]:
        """Return the result, in the shape of the tensor, as a torch future; waiting for it raises the call's error."""
        devices: list[int | str | torch.device] = [self.device] if self.device.type == "cuda" else []
        future: torch.futures.Future[None] = torch.futures.Future(devices=devices)
        self.then(lambda _: future.set_result(None))
        return future.then(lambda _: self.wait())


_UNNAMED: Job[Any] = Job()
"""A job of a thread that waits for it anyway, so that nobody else has to see it end."""
IN_FLIGHT = 2
"""Most jobs of one worker that may be under way at once, each on a thread of its own."""
NOBODY, WOKEN = 0, -1
"""In place of a thread's number: no thread, or a woken one that does not run yet."""


class Worker:
    """A worker that runs jobs in turns, first come, first served, so that all ranks run them in one order.

    A caller that waits anyway runs its function itself when nothing is before it: that saves two changes of thread.
    """

    def __init__(self, name: str) -> None:
        self._jobs = deque[tuple[Job[Any], Callable[[], Any]]]()
        self._waiting = 0
        """Jobs that were submitted and have not ended."""
        self._taker = NOBODY
        """The thread that takes the jobs, one after another, until another one has to; or the one that is to take over.
        """
        self._passed = False
        """True where a job has passed on and goes on, so that another thread takes the next one."""
        self._count = threading.Lock()
        self._turn = threading.Lock()
        """A lock held by the thread whose job has not passed on yet."""
        self._name = name
        self._threads: list[threading.Thread] = []
        self._idle: list[queue.SimpleQueue[bool]] = []
        """The queues of idle threads, each told of the next job or of the end; the last to wait is first."""
        self._draining = False
        self.caller = 0
        """The thread that waits for its call, from before it is queued; 0 where none does."""
        self.running: dict[int, Job[Any]] = {}
        """The job that each thread runs."""
        self._last: Turn | None = None
        """The turn of the job that began last."""

    def run(
        self, function: Callable[[], T], job: Job[T] | None = None, later: Callable[[], Callable[[], T]] | None = None
    ) -> T:
        """Run ``function`` after all submitted jobs, and return its result.

        Where it has to wait for others it is submitted, as ``job``; or the function that ``later`` returns is. Raises
        SynchronisationError (``reentrant-call``) from inside a job or its callback, where it would never end.
        """
        own = threading.get_ident()
        if own in self.running:
            message = "a callback of a call can't wait for another call of the same group"
            raise SynchronisationError(Diagnostic("reentrant-call", message, help="use async_op=True there"))
        with self._count:
            alone = self._waiting == 0 and self._turn.acquire(blocking=False)
        if not alone:
            return self.submit(later() if later else function, job or Job()).wait()
        if job is not None:
            job.turn.touched = None  # its thread does not count among those for jobs in flight
        self.running[own] = job or _UNNAMED
        try:
            if job is None or not job._listeners:  # nobody is to be told
                return in_plain_surroundings(function)
            job.run(partial(in_plain_surroundings, function))
            return job.wait()
        finally:
            del self.running[own]
            self._turn.release()

    def within(self, part: Callable[[], T]) -> T:
        """Do ``part`` of the job that this thread runs; or, where it runs none, run it as one.

        Work of all ranks together, such as loading a scheme, then comes at the same place among their calls. Raises
        SynchronisationError (``reentrant-call``) from a callback, whose call may not have ended on other ranks.
        """
        job = self.running.get(threading.get_ident())
        return part() if job is not None and not job.is_completed() else self.run(part)

    def _take_turn(self, job: Job[T], function: Callable[[], T]) -> None:
        """Run ``job`` on this thread, which holds the turn until it passes on."""
        before, self._last = self._last, job.turn
        self.running[threading.get_ident()] = job
        try:
            job.turn.begin(before, self._let_next)
            job.run(partial(self._run_open, function))
        finally:
            del self.running[threading.get_ident()]
            job.turn.end()
            if not job.turn.passed:
                self._turn.release()

    def _run_open(self, function: Callable[[], T]) -> T:
        """Return the result of ``function``; when it has ended, its thread takes the next job itself."""
        try:
            return in_plain_surroundings(function)
        finally:
            with self._count:
                if self._taker == threading.get_ident():
                    self._passed = False

    def _let_next(self) -> None:
        self._turn.release()
        with self._count:
            self._passed = True
            self._wake_if_needed()

    def _wake_if_needed(self) -> None:
        if self._jobs and (self._passed or self._taker == NOBODY):
            self._taker, self._passed = WOKEN, False
            if self._idle:
                self._idle.pop().put(True)

    def submit(self, function: Callable[[], T], job: Job[T] | None = None) -> Job[T]:
        """Queue ``function``, as ``job``, and return at once."""
        job = job or Job()
        with self._count:
            self._waiting += 1
            if not self._threads:
                self._threads = [
                    threading.Thread(target=self._loop, name=self._name, daemon=True) for _ in range(IN_FLIGHT)
                ]
                for thread in self._threads:
                    thread.start()
            self._jobs.append((job, function))
            self._wake_if_needed()
        return job

    def drain(self, seconds: float) -> bool:
        """Wait until all submitted jobs have ended; return False if ``seconds`` were not enough."""
        deadline = time.monotonic() + seconds
        with self._count:
            self._draining = True
            while self._idle:
                self._idle.pop().put(False)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._draining = bool(self._threads)
        return not self._threads

    def _loop(self) -> None:
        woken = queue.SimpleQueue[bool]()
        goes_on = True
        while goes_on:
            while (entry := self._taken(woken)) is not None:
                self._turn.acquire()
                self._take_turn(*entry)
                with self._count:
                    self._waiting -= 1
            goes_on = woken.get()

    def _taken(self, woken: queue.SimpleQueue[bool]) -> tuple[Job[Any], Callable[[], Any]] | None:
        """Return the next job, if this thread or nobody takes jobs; without one, ``woken`` tells of the next."""
        with self._count:
            own = threading.get_ident()
            if self._taker in (own, NOBODY, WOKEN):
                self._taker = own if self._jobs else NOBODY
                if self._jobs:
                    return self._jobs.popleft()
            if self._draining:
                woken.put(False)
            else:
                self._idle.append(woken)
            return None
