"""A whole call of one rank without its wire: packets that were recorded are received again, in memory.

What is left is all that zenc computes in a call: kernels, Python, and the memory that it makes. The copies of packets
into the receiver's buffers stand for the wire, and are taken off; the pages that they touch first count for the wire.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any

import torch

import zenc
from tests.support import local
from zenc.pipeline import backend
from zenc.runtime.call.call_queue import Worker
from zenc.runtime.call.collective import Collective
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.transports.transport import PacketTransport

RANKS = 8
STEP_BITS = (1 << 15) - 1
"""The bits of a tag for the step, and the packet of a message; the rest is the call."""
CALL_AT = slice(24, 32)
"""The place of the call's number in a message header."""
Packets = dict[tuple[int, int], torch.Tensor]


class Delivered:
    """A packet that is there."""

    __slots__ = ("buffer",)

    def __init__(self, buffer: torch.Tensor) -> None:
        self.buffer = buffer

    def wait(self, seconds: float) -> torch.Tensor:
        return self.buffer


class OneCall(Communicator):
    """Communicator all of whose calls have the number of the recorded one."""

    def next_call(self) -> int:
        return self.calls


class RecordedCall(PacketTransport):
    """Rank 0's part in ``scheme`` among as many ranks as there are tensors.

    ``wire``: CPU seconds that the last call took to copy packets.
    """

    rank = 0

    def __init__(self, tensors: list[torch.Tensor], scheme: str = "balanced") -> None:
        self.size, self.mine, self.wire = len(tensors), tensors[0].clone(), 0.0
        artifact = zenc.compile(scheme, ranks=self.size)
        self.packets = recorded(artifact, tensors)
        nowhere: Any = None
        communicator = OneCall(nowhere, nowhere, self, Worker("recorded"))
        header = next(iter(self.packets.values()))
        communicator.calls = int.from_bytes(bytes(header[CALL_AT].tolist()), "little")
        made = backend(artifact, torch.device("cpu"), communicator, 60.0)
        self.collective = Collective(artifact, communicator, lambda _: made)

    def fresh(self) -> torch.Tensor:
        """Return a gradient to sum: a dense one is overwritten by its sum."""
        return self.mine if self.mine.is_sparse else self.mine.clone()

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        self.wire = 0.0
        return self.collective.all_reduce(tensor)

    def send(self, peer: int, tag: int, buffer: torch.Tensor) -> Delivered:
        return Delivered(buffer)

    def receive(self, peer: int, tag: int, buffer: torch.Tensor) -> Delivered:
        started = time.thread_time()
        packet = self.packets[peer, tag & STEP_BITS]
        ctypes.memmove(buffer.data_ptr(), packet.data_ptr(), packet.numel())
        self.wire += time.thread_time() - started
        return Delivered(buffer)

    def close(self) -> None:
        """Do nothing."""


def recorded(artifact: Any, tensors: list[torch.Tensor]) -> Packets:
    """Return the packets that rank 0 receives when ``tensors`` are summed, by peer, step and packet."""
    packets: Packets = {}
    ranks = local.collectives(artifact, len(tensors), deadline=60.0)
    transport = ranks[0].communicator.transport
    receive = transport.receive

    class Keeping:
        def __init__(self, pending: Any, key: tuple[int, int]) -> None:
            self.pending, self.key = pending, key

        def wait(self, seconds: float) -> torch.Tensor:
            packet: torch.Tensor = self.pending.wait(seconds)
            packets[self.key] = packet.clone()
            return packet

    def receive_and_keep(peer: int, tag: int, buffer: torch.Tensor) -> Keeping:
        return Keeping(receive(peer, tag, buffer), (peer, tag & STEP_BITS))

    transport.receive = receive_and_keep
    local.run_all(ranks, [tensor.clone() for tensor in tensors])
    return packets
