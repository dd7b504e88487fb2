"""Transports: messages of bytes from rank to rank.

Between ranks that share memory or have a connection of zenc's own every message is one packet. Gloo has to know the
greatest length of a packet: over it a message is sent as one of at most ``EAGER_BYTES``, or as such a packet and one
with the rest, whose size the header in the first tells.
"""

from __future__ import annotations

import time
from typing import Protocol

import torch

EAGER_BYTES = 16 * 1024
ROUND_BITS = 14
"""Tags are 31 bits: the call modulo 2^16, the round, and which packet of a message."""
SLICE_SECONDS = 0.05
"""Seconds after which a wait of zenc's own checks that its peer is alive, and lets Python handle signals."""


class Pending(Protocol):
    """A send or receive under way. ``wait`` raises RuntimeError when the deadline passes or the peer is gone."""

    def wait(self, seconds: float) -> torch.Tensor:
        """Wait until it is done, for at most ``seconds``; return the packet [bytes], or a buffer that begins with it.

        A whole packet is as long as it was sent. The packet of a peer that shares memory is not to be written to.
        """


class Done:
    """A send or receive that needs no wait, with its packet in ``buffer``."""

    __slots__ = ("buffer",)

    def __init__(self, buffer: torch.Tensor) -> None:
        self.buffer = buffer

    def wait(self, seconds: float) -> torch.Tensor:
        """Return the packet [bytes] at once."""
        return self.buffer


def ensure_time(until: float, seconds: float, what: str) -> float:
    """Return the end of a wait of ``seconds`` of which a slice has passed; raises RuntimeError if it is over."""
    until = until or time.monotonic() + seconds - SLICE_SECONDS
    if time.monotonic() >= until:
        raise RuntimeError(f"nothing {what} within {seconds:g} s")
    return until


class Transport(Protocol):
    """Point-to-point messages among ``size`` ranks. Buffers are uint8 tensors and stay alive until waited for.

    A packet may be shorter than the buffer that receives it, never longer. One that is sent is not written to any more.
    A packet goes to the receive of its tag, whatever the order. Threads: two calls may be under way, each on a thread
    of its own, and a message is waited for on the thread that posted it. ``close`` may come from any other thread at
    any time, and ends all waits there with RuntimeError; ``release`` comes after it, once no thread of a call is left.
    Buffers of ``room`` and received packets may be let go of on any thread. Gloo, sockets, shared memory and the
    simulated network of ``tests/faults`` keep to this.
    """

    rank: int
    size: int

    def shares(self, peer: int) -> bool:
        """Return whether messages to and from rank ``peer`` go through shared memory, which is not to be written to."""

    def whole(self, peer: int) -> bool:
        """Return whether each message to and from rank ``peer`` is one packet, of any length, and needs no buffer."""

    def room(self, size: int) -> torch.Tensor:
        """Return a tensor [size] of bytes, uint8, for a message: one that is made there is sent without a copy."""

    def send(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """Start to send ``buffer`` [bytes] to rank ``peer``."""

    def receive(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """Start to receive into ``buffer`` [bytes] from rank ``peer``."""

    def close(self) -> None:
        """Let go of the carrier of the messages; nothing is sent from then on."""

    def release(self) -> None:
        """Let go of files and memory, once closed and without waiting threads.

        Received packets stay with their owners.
        """


class PacketTransport:
    """Base of transports whose messages come in packets, and not through shared memory."""

    def shares(self, peer: int) -> bool:
        """Return False: no ``peer`` shares memory."""
        return False

    def whole(self, peer: int) -> bool:
        """Return False: messages of no ``peer`` are one packet."""
        return False

    def room(self, size: int) -> torch.Tensor:
        """Return a tensor [size] of bytes, as ``Transport.room`` does."""
        return torch.empty(size, dtype=torch.uint8, device="cpu")

    def release(self) -> None:
        """Do nothing: ``close`` has let go of everything."""
