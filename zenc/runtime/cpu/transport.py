"""Transports: messages of bytes from rank to rank, and gloo as one that carries them.

A message is sent as one packet of at most ``EAGER_BYTES``, or as such a packet and one with the rest, whose size the
header in the first tells. So a small message costs one packet and no exchange of sizes, and nothing is padded.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import NoReturn, Protocol, TypeAlias

import torch
import torch.distributed as dist

EAGER_BYTES = 16 * 1024


class Pending(Protocol):
    """A send or receive under way. ``wait`` raises RuntimeError when the deadline passes or the peer is gone."""

    def wait(self, seconds: float) -> None:
        """Block until it is done, for at most ``seconds``."""


class Transport(Protocol):
    """Point-to-point messages among ``size`` ranks. Buffers are uint8 tensors and stay alive until waited for.

    A packet may be shorter than the buffer that receives it, never longer.
    """

    rank: int
    size: int

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

    def wait(self, seconds: float) -> None:
        self.work.wait(_duration(seconds))


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
    abort: Callable[[], None]


class GlooTransport:
    """The transport over a gloo process group that belongs to zenc alone.

    Gloo takes a packet into any buffer that is large enough, and ends the process when it is too small; hence the
    fixed size of first packets.
    """

    def __init__(self, group: GlooGroup) -> None:
        self.rank, self.size = group.rank(), group.size()
        self._send: _Post = group.send
        self._recv: _Post = group.recv

    def send(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """As ``Transport.send``, of ``buffer`` [bytes]."""
        return _Work(self._send([buffer], peer, tag), buffer)

    def receive(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """As ``Transport.receive``, into ``buffer`` [bytes]."""
        return _Work(self._recv([buffer], peer, tag), buffer)

    def close(self) -> None:
        """Let go of the group."""
        self._send = self._recv = _closed


def _closed(tensors: list[torch.Tensor], rank: int, tag: int) -> NoReturn:
    raise RuntimeError("the transport is closed")
