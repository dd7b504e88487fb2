"""Bugs to plant in the run time: mistakes a developer might make, which the simulator has to find.

``planted`` plants one of ``BUGS`` for the time of a ``with``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from zenc.rank_ir.ir import Merge
from zenc.runtime.call.call_queue import Job, Turn
from zenc.runtime.cpu.backend import CpuPrepared
from zenc.runtime.cpu.channel import Channel
from zenc.runtime.cpu.executor import SegmentInterpreter
from zenc.runtime.group import communicator
from zenc.runtime.transports.gloo_transport import GlooTransport, _Posted

FOREVER = 1e9


def _unchecked_deadline(real: Any) -> Any:
    def wait_all(self: Channel, sending: list[Any]) -> None:
        deadline, self.deadline = self.deadline, FOREVER
        try:
            real(self, sending)
        finally:
            self.deadline = deadline

    return wait_all


def _forgotten_peer(real: Any) -> Any:
    """Let a rank that gives up tell its next peer alone, whose connection may have ended."""

    def _end_connections(group: Any, peers: Any) -> None:
        real(group, peers[:1])

    return _end_connections


def _counted_twice(real: Any) -> Any:
    """Add the last message in a merge of three twice."""

    def play(self: SegmentInterpreter, statement: Any) -> None:
        if isinstance(statement, Merge) and len(statement.segments) > 2:
            statement = Merge(statement.result, (*statement.segments, statement.segments[-1]), statement.frees)
        real(self, statement)

    return play


def _one_room(real: Any) -> Any:
    """Let overlapping calls receive into the same buffers."""

    def start(self: CpuPrepared, header: Any, losses: Any = None) -> Any:
        call = real(self, header, losses)
        inbox = getattr(call.interpreter, "inbox", None)
        if inbox is not None:
            inbox.room = self.rooms[0]
        return call

    return start


def _lock_over_a_wait(real: Any) -> Any:
    """Hold the lock that a call needs to end while waiting for it."""

    def wait(self: Job[Any], timeout: float | None = None) -> Any:
        with self._lock:
            return real(self, timeout)

    return wait


def _unsettled(real: Any) -> Any:
    """Write a call's result before the call before it has ended well."""
    return lambda self: None


def _raw_error(real: Any) -> Any:
    """Raise gloo's error for a connection that has already ended."""

    def receive(self: GlooTransport, peer: int, tag: int, buffer: Any) -> Any:
        return _Posted(self, self._recv([buffer], peer, tag), peer, buffer)

    return receive


def _unwatched(real: Any) -> Any:
    """Do not tell a wait for a partly received packet of the end of its connection."""
    return lambda self, work, peer, seconds: work.wait(timedelta(seconds=seconds))


def _goes_on(real: Any) -> Any:
    """Let the next call of a failed rank not know of the failure."""
    return lambda self: None


BUGS: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "a deadline that is not checked": (Channel, "wait_all", _unchecked_deadline),
    "an abort that forgets a peer": (communicator, "_end_connections", _forgotten_peer),
    "a message counted twice": (SegmentInterpreter, "play", _counted_twice),
    "a lock held over a wait": (Job, "wait", _lock_over_a_wait),
    "one buffer for two calls": (CpuPrepared, "start", _one_room),
    "a result that does not wait for the call before": (Turn, "settle", _unsettled),
    "an error of another library": (GlooTransport, "receive", _raw_error),
    "a packet that nobody looks after": (GlooTransport, "wait_for", _unwatched),
    "a failure that is forgotten": (communicator.Communicator, "ensure_healthy", _goes_on),
}
"""Bug -> the owner of the replaced attribute, its name, and the replacement."""


@contextmanager
def planted(bug: str) -> Iterator[None]:
    place, name, made = BUGS[bug]
    real = getattr(place, name)
    setattr(place, name, made(real))
    try:
        yield
    finally:
        setattr(place, name, real)
