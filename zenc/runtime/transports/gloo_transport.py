"""The transport over a gloo process group of torch's, and threads that wait for its packets."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import NoReturn, Protocol, TypeAlias

import torch
import torch.distributed as dist

from zenc.runtime.transports.transport import ROUND_BITS, PacketTransport, Pending

NEVER_SENT = (1 << ROUND_BITS + 1) - 1
"""A tag of no packet: no scheme has that many rounds."""
LOOK_SECONDS = 1.0
"""The time after which a waiting thread checks whether its connection is still there."""

_Post: TypeAlias = Callable[[list[torch.Tensor], int, int], dist.Work]


class GlooGroup(Protocol):
    """The part of ``torch.distributed.ProcessGroupGloo`` that zenc uses, which its type stubs leave out."""

    rank: Callable[[], int]
    size: Callable[[], int]
    send: _Post
    recv: _Post
    allgather: Callable[[list[list[torch.Tensor]], list[torch.Tensor]], dist.Work]
    allreduce: Callable[[list[torch.Tensor]], dist.Work]
    broadcast: Callable[[list[torch.Tensor], dist.BroadcastOptions], dist.Work]
    alltoall_base: Callable[[torch.Tensor, torch.Tensor, list[int], list[int]], dist.Work]
    abort: Callable[[], None]


class GlooTransport(PacketTransport):
    """The transport over a gloo process group that belongs to zenc alone.

    Gloo takes a packet into any buffer that is large enough, and ends the process when it is too small; hence the
    fixed size of first packets. On a connection that has ended it refuses to begin, and the wait for the packet fails.
    """

    def __init__(self, group: GlooGroup) -> None:
        self.rank, self.size = group.rank(), group.size()
        self._send: _Post = group.send
        self._recv: _Post = group.recv
        self._waits = PacketWaits()

    def send(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """Send as ``Transport.send`` does, from ``buffer`` [bytes]."""
        try:
            return _Posted(self, self._send([buffer], peer, tag), peer, buffer)
        except RuntimeError as error:
            return _Refused(error)

    def receive(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """Receive as ``Transport.receive`` does, into ``buffer`` [bytes]."""
        try:
            return _Posted(self, self._recv([buffer], peer, tag), peer, buffer)
        except RuntimeError as error:
            return _Refused(error)

    def wait_for(self, work: dist.Work, peer: int, seconds: float) -> None:
        """Wait until ``work`` is done; raises RuntimeError if the connection to ``peer`` ends, or this transport."""
        self._waits.wait(
            work, seconds, lambda: self._recv([torch.empty(1, dtype=torch.uint8, device="cpu")], peer, NEVER_SENT)
        )

    def close(self) -> None:
        """Let go of the group; waits for packets end with an error."""
        self._send = self._recv = _closed
        self._waits.close()

    def join(self, seconds: float) -> bool:
        """Wait, once closed, until the threads have ended; return False if ``seconds`` were not enough."""
        return self._waits.join(seconds)


def _closed(tensors: list[torch.Tensor], rank: int, tag: int) -> NoReturn:
    raise RuntimeError("the transport is closed")


class _Posted:
    """A send or receive under way of ``buffer``, which it keeps alive."""

    __slots__ = ("buffer", "peer", "transport", "work")

    def __init__(self, transport: GlooTransport, work: dist.Work, peer: int, buffer: torch.Tensor) -> None:
        self.transport, self.work, self.peer, self.buffer = transport, work, peer, buffer

    def wait(self, seconds: float) -> torch.Tensor:
        self.transport.wait_for(self.work, self.peer, seconds)
        return self.buffer


class _Refused:
    """A send or receive that could not begin, since its connection has ended."""

    __slots__ = ("error",)

    def __init__(self, error: RuntimeError) -> None:
        self.error = error

    def wait(self, seconds: float) -> NoReturn:
        raise self.error


class PacketWaits:
    """Threads that wait for packets, so that their callers can stop waiting: one for each call under way.

    When a connection ends gloo ends all waits for its packets, but for those whose packet is partly written or
    read (``signalException`` of its TCP pairs passes over these): they would wait for their deadline. The thread still
    does, and ends then.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_PacketWaiter] = []
        self._busy: list[_PacketWaiter] = []
        self._closed = False

    def wait(self, work: dist.Work, seconds: float, look: Callable[[], object]) -> None:
        """Wait for ``work``, at most ``seconds``, with a ``look`` each second that may raise RuntimeError.

        Raises RuntimeError also as ``work.wait`` does, soon after its time, and when all this is closed.
        """
        waiter = self._taken()
        waiter.asked.put((work, time.monotonic() + seconds))
        if (error := waiter.answered(look)) is not None:
            raise error
        with self._lock:
            if not self._closed:
                self._busy.remove(waiter)
                self._idle.append(waiter)

    def _taken(self) -> _PacketWaiter:
        with self._lock:
            if self._closed:
                raise RuntimeError("the transport is closed")
            waiter = self._idle.pop() if self._idle else _PacketWaiter()
            self._busy.append(waiter)
        return waiter

    def close(self) -> None:
        """End all waits with an error, and each thread once it waits for nothing."""
        with self._lock:
            self._closed = True
            self._busy += self._idle
            self._idle.clear()
        for waiter in self._busy:
            waiter.answers.put(RuntimeError("the transport is closed"))
            waiter.asked.put(None)

    def join(self, seconds: float) -> bool:
        """Wait, once closed, until the threads have ended; return False if ``seconds`` were not enough."""
        until = time.monotonic() + seconds
        for waiter in self._busy:
            waiter.thread.join(max(0.0, until - time.monotonic()))
        return not any(waiter.thread.is_alive() for waiter in self._busy)


class _PacketWaiter:
    """A thread that waits for one packet after another, in turn with its callers."""

    def __init__(self) -> None:
        self.asked = queue.SimpleQueue[tuple[dist.Work, float] | None]()
        self.answers = queue.SimpleQueue[RuntimeError | None]()
        self.thread = threading.Thread(target=self._loop, name="zenc-gloo", daemon=True)
        self.thread.start()

    def _loop(self) -> None:
        while (asked := self.asked.get()) is not None:
            work, until = asked
            try:
                work.wait(timedelta(seconds=max(0.001, until - time.monotonic())))
                self.answers.put(None)
            except RuntimeError as error:
                self.answers.put(error)

    def answered(self, look: Callable[[], object]) -> RuntimeError | None:
        """Return the thread's answer on a packet; once its connection has ended it has a second to say that it came."""
        lost: RuntimeError | None = None
        while True:
            try:
                return self.answers.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                if lost is not None:
                    return lost
            try:
                look()
            except RuntimeError as error:
                lost = error
