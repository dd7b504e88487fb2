"""A whole call of one of 8 ranks without its wire: packets that were recorded are received again, in memory.

What is left is all that zenc computes in a call: kernels, Python, and the memory that it makes. The copies of packets
into the receiver's buffers stand for the wire, and are taken off; the pages that they touch first count for the wire.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any

import numpy as np
import torch

import zenc
from benchmarks.kernels.gradients import Shape
from benchmarks.replayed import CALL_AT, STEP_BITS, Delivered, NoWire, OneCall
from tests.support import local
from zenc.pipeline import backend
from zenc.runtime.call.call_queue import Worker
from zenc.runtime.call.collective import Collective

RANKS = 8
Packets = dict[tuple[int, int], torch.Tensor]


def gradient(shape: Shape, seed: int) -> torch.Tensor:
    """Return rows as a sparse tensor, single elements as a dense one."""
    rng = np.random.default_rng(seed)
    ids = torch.from_numpy(rng.permutation(shape.units)[: round(shape.units * shape.density)])
    values = torch.from_numpy(rng.standard_normal((ids.numel(), shape.width)).astype(np.float32))
    if shape.width > 1:
        return torch.sparse_coo_tensor(ids[None], values, (shape.units, shape.width), check_invariants=False)
    return torch.zeros(shape.units).index_copy_(0, ids, values[:, 0])


class RecordedCall(NoWire):
    """Rank 0's part in ``scheme`` of 8 ranks. ``wire``: CPU seconds that the last call took to copy packets."""

    rank, size = 0, RANKS

    def __init__(self, tensors: list[torch.Tensor], scheme: str = "balanced") -> None:
        artifact = zenc.compile(scheme, ranks=RANKS)
        self.mine, self.wire = tensors[0].clone(), 0.0
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

    def receive(self, peer: int, tag: int, buffer: torch.Tensor) -> Delivered:
        started = time.thread_time()
        packet = self.packets[peer, tag & STEP_BITS]
        ctypes.memmove(buffer.data_ptr(), packet.data_ptr(), packet.numel())
        self.wire += time.thread_time() - started
        return Delivered(buffer)


def recorded(artifact: Any, tensors: list[torch.Tensor]) -> Packets:
    """Return the packets that rank 0 receives when ``tensors`` are summed, by peer, step and packet."""
    packets: Packets = {}
    ranks = local.collectives(artifact, RANKS, deadline=60.0)
    transport = ranks[0].communicator.transport
    receive = transport.receive

    class Keeping:
        def __init__(self, pending: Any, key: tuple[int, int], buffer: torch.Tensor) -> None:
            self.pending, self.key, self.buffer = pending, key, buffer

        def wait(self, seconds: float) -> torch.Tensor:
            packet: torch.Tensor = self.pending.wait(seconds)
            packets[self.key] = packet.clone()
            return packet

    def receive_and_keep(peer: int, tag: int, buffer: torch.Tensor) -> Keeping:
        return Keeping(receive(peer, tag, buffer), (peer, tag & STEP_BITS), buffer)

    transport.receive = receive_and_keep
    local.run_all(ranks, [tensor.clone() for tensor in tensors])
    return packets
