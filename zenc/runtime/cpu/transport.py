"""Transports: messages of bytes from rank to rank, and gloo as one that carries them.

Between ranks that share memory or have a connection of zenc's own every message is one packet. Gloo has to know how
long a packet may be: over it a message is sent as one of at most ``EAGER_BYTES``, or as such a packet and one with the
rest, whose size the header in the first tells.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import NoReturn, Protocol, TypeAlias

import torch
import torch.distributed as dist

EAGER_BYTES = 16 * 1024
ROUND_BITS = 14
"""Tags are 31 bits: the call modulo 2^16, the round, and which packet of a message."""


class Pending(Protocol):
    """A send or receive under way. ``wait`` raises RuntimeError when the deadline passes or the peer is gone."""

    def wait(self, seconds: float) -> torch.Tensor:
        """Block until it is done, for at most ``seconds``: the packet [bytes], or a buffer that begins with it.

        A whole one is as long as it was sent. That of a peer that shares memory is not to be written to.
        """


class Transport(Protocol):
    """Point-to-point messages among ``size`` ranks. Buffers are uint8 tensors and stay alive until waited for.

    A packet may be shorter than the buffer that receives it, never longer. One that is sent is not written to any more.
    It goes to the receive of its tag, whatever the order: two calls may be under way, each on a thread of its own.
    """

    rank: int
    size: int

    def shares(self, peer: int) -> bool:
        """Whether messages to and from rank ``peer`` go through memory that both have: none is to be written to."""

    def whole(self, peer: int) -> bool:
        """Whether each message to and from rank ``peer`` is one packet, of any length, and needs no buffer."""

    def room(self, size: int) -> torch.Tensor:
        """A tensor [size] of bytes, uint8, for a message: one that is made there is sent without a copy."""

    def send(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """Start to send ``buffer`` [bytes] to rank ``peer``."""

    def receive(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """Start to receive into ``buffer`` [bytes] from rank ``peer``."""

    def close(self) -> None:
        """Let go of what carries the messages; nothing is sent from then on."""


class _Work:
    """A torch.distributed work that keeps its buffer alive."""

    __slots__ = ("buffer", "work")

    def __init__(self, work: dist.Work, buffer: torch.Tensor) -> None:
        self.work, self.buffer = work, buffer

    def wait(self, seconds: float) -> torch.Tensor:
        self.work.wait(_duration(seconds))
        return self.buffer


class _Refused:
    """A send or receive that could not begin, since its connection has ended."""

    __slots__ = ("error",)

    def __init__(self, error: RuntimeError) -> None:
        self.error = error

    def wait(self, seconds: float) -> NoReturn:
        raise self.error


@cache
def _duration(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


_Post: TypeAlias = Callable[[list[torch.Tensor], int, int], dist.Work]


class GlooGroup(Protocol):
    """The part of ``torch.distributed.ProcessGroupGloo`` that zenc uses, which its type stubs leave out."""

    rank: Callable[[], int]
    size: Callable[[], int]
    send: _Post
    recv: _Post
    allgather: Callable[[list[list[torch.Tensor]], list[torch.Tensor]], dist.Work]
    allreduce: Callable[[list[torch.Tensor]], dist.Work]
    alltoall_base: Callable[[torch.Tensor, torch.Tensor, list[int], list[int]], dist.Work]
    abort: Callable[[], None]


class PacketTransport:
    """Base of transports whose messages come in packets, and through no memory that is shared."""

    def shares(self, peer: int) -> bool:
        """As ``Transport.shares``: with no ``peer``."""
        return False

    def whole(self, peer: int) -> bool:
        """As ``Transport.whole``: to and from no ``peer``."""
        return False

    def room(self, size: int) -> torch.Tensor:
        """As ``Transport.room``: a tensor [size] of bytes."""
        return torch.empty(size, dtype=torch.uint8)


class GlooTransport(PacketTransport):
    """The transport over a gloo process group that belongs to zenc alone.

    Gloo takes a packet into any buffer that is large enough, and ends the process when it is too small; hence the
    fixed size of first packets. On a connection that has ended it refuses to begin: who waits for the packet is told.
    """

    def __init__(self, group: GlooGroup) -> None:
        self.rank, self.size = group.rank(), group.size()
        self._send: _Post = group.send
        self._recv: _Post = group.recv

    def send(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """As ``Transport.send``, of ``buffer`` [bytes]."""
        try:
            return _Work(self._send([buffer], peer, tag), buffer)
        except RuntimeError as error:
            return _Refused(error)

    def receive(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """As ``Transport.receive``, into ``buffer`` [bytes]."""
        try:
            return _Work(self._recv([buffer], peer, tag), buffer)
        except RuntimeError as error:
            return _Refused(error)

    def close(self) -> None:
        """Let go of the group."""
        self._send = self._recv = _closed


def _closed(tensors: list[torch.Tensor], rank: int, tag: int) -> NoReturn:
    raise RuntimeError("the transport is closed")
