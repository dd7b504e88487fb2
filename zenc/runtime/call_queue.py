"""Calls under way: one worker a communicator runs them in the order in which they were made."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

import torch

from zenc.errors import Diagnostic, SynchronisationError
from zenc.runtime.stats import CallReport, CallStats
from zenc.runtime.streams import record_on_current_stream

log = logging.getLogger("zenc")

CPU = torch.device("cpu")
T = TypeVar("T")


class Work:
    """The handle of an asynchronous call, whose tensors are on ``device``."""

    def __init__(self, device: torch.device = CPU) -> None:
        self.device = device
        self.counted: CallStats | None = None
        self._ended = False
        self._latch = threading.Lock()  # locked until the call has ended; a threading.Event costs far more to make
        self._latch.acquire()
        self._result: torch.Tensor | None = None
        self._error: BaseException | None = None
        self._listeners: list[Callable[[Work], None]] = []
        self._lock = threading.Lock()

    @property
    def stats(self) -> CallReport:
        """As ``Collective.stats``, of this call, once it has ended well."""
        return self.counted.to_json() if self.counted else {}

    def __repr__(self) -> str:
        failed = f"failed with {type(self._error).__name__}" if self._error else "ended"
        return f"<zenc.Work {failed if self._ended else 'under way'} on {self.device}>"

    def is_completed(self) -> bool:
        """Whether the call has ended, well or not."""
        return self._ended

    def wait(self, timeout: float | None = None) -> torch.Tensor:
        """The result; raises the call's error, or SynchronisationError after ``timeout`` seconds."""
        if not self._ended:
            if not self._latch.acquire(timeout=-1 if timeout is None else timeout):
                message = f"the call did not end within {timeout:g} s; it goes on"
                raise SynchronisationError(Diagnostic("deadline", message))
            self._latch.release()
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return record_on_current_stream(self._result)

    def get_future(self) -> torch.futures.Future[torch.Tensor]:
        """The result as a torch future, for those who compose with torch; waiting for it raises the call's error."""
        devices: list[int | str | torch.device] = [self.device] if self.device.type == "cuda" else []
        future: torch.futures.Future[None] = torch.futures.Future(devices=devices)
        self.then(lambda _: future.set_result(None))
        return future.then(lambda _: self.wait())

    def then(self, listener: Callable[[Work], None]) -> None:
        """Call ``listener(self)`` when the call has ended, from the thread that ended it, or at once.

        What a listener raises is logged, and goes no further.
        """
        with self._lock:
            if not self._ended:
                self._listeners.append(listener)
                return
        _tell(listener, self)

    def run(self, call: Callable[[Work], torch.Tensor]) -> None:
        """Run ``call`` and end with its result or error."""
        try:
            self._result = call(self)
        except BaseException as error:
            self._error = error
        with self._lock:
            self._ended = True
            self._latch.release()
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            _tell(listener, self)


def _tell(listener: Callable[[Work], None], work: Work) -> None:
    """A listener that fails is its owner's error, and must not end the thread that runs the calls."""
    try:
        listener(work)
    except Exception:
        log.exception("a callback of a call failed")


class Worker:
    """Runs calls one at a time, first come, first served, so that all ranks run them in one order.

    A caller that waits anyway runs its call itself when nothing is before it: that saves two changes of thread.
    """

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Work, Callable[[Work], torch.Tensor]] | None] = queue.SimpleQueue()
        self._waiting = 0
        self._turn = threading.Lock()
        self._count = threading.Lock()
        self._name = name
        self._thread: threading.Thread | None = None
        self._running: tuple[int, Work] | None = None
        """The thread that has the turn, and for what."""

    def run(self, call: Callable[[Work], torch.Tensor]) -> torch.Tensor:
        """Run ``call`` after all that were submitted before, and return its result.

        Raises SynchronisationError (``reentrant-call``) from inside a call or its callback, where it would never end.
        """
        if self._own_turn() is not None:
            message = "a callback of a call can't wait for another call of the same group"
            raise SynchronisationError(Diagnostic("reentrant-call", message, help="use async_op=True there"))
        with self._count:
            alone = self._waiting == 0 and self._turn.acquire(blocking=False)
        if not alone:
            return self.submit(call).wait()
        try:
            work = Work()
            self._take_turn(work, call)
        finally:
            self._turn.release()
        return work.wait()

    def within(self, part: Callable[[], T]) -> T:
        """Do ``part`` of the call that this thread runs; or, where it runs none, of a call of its own.

        What all ranks do together, such as to load a scheme, then comes at the same place among their calls. Raises
        SynchronisationError (``reentrant-call``) from a callback: its call has ended, and on other ranks maybe not.
        """
        work = self._own_turn()
        if work is not None and not work.is_completed():
            return part()
        done: list[T] = []

        def call(_: Work) -> torch.Tensor:
            done.append(part())
            return torch.empty(0)

        self.run(call)
        return done[0]

    def _own_turn(self) -> Work | None:
        """What this thread has the turn for; None if it has not."""
        running = self._running
        return running[1] if running is not None and running[0] == threading.get_ident() else None

    def _take_turn(self, work: Work, call: Callable[[Work], torch.Tensor]) -> None:
        self._running = threading.get_ident(), work
        try:
            work.run(call)
        finally:
            self._running = None

    def submit(self, call: Callable[[Work], torch.Tensor], device: torch.device = CPU) -> Work:
        """Queue ``call``, which gives a tensor on ``device``, and return at once."""
        work = Work(device)
        with self._count:
            self._waiting += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
                self._thread.start()
        self._calls.put((work, call))
        return work

    def drain(self, seconds: float) -> bool:
        """Wait until all that was submitted has ended; False if ``seconds`` were not enough."""
        if self._thread is None:
            return True
        self._calls.put(None)
        self._thread.join(seconds)
        ended = not self._thread.is_alive()
        if ended:
            self._thread = None
        return ended

    def _loop(self) -> None:
        while (entry := self._calls.get()) is not None:
            work, call = entry
            with self._turn:
                self._take_turn(work, call)
            with self._count:
                self._waiting -= 1
