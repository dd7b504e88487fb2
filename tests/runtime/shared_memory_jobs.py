"""Jobs of ranks in the tests of shared memory; each takes the group first and returns what can be pickled."""

from __future__ import annotations

import os
import signal
import time

import torch
import torch.distributed as dist

import zenc
from tests.runtime.jobs import DEADLINE, bits, both_ways
from tests.support.cases import sparse_tensor
from zenc.runtime.transports import shared_memory
from zenc.runtime.transports.shared_transport import SharedTransport


def peers(collective: zenc.Collective) -> list[int]:
    """Return the ranks with which this one shares memory."""
    transport = collective.communicator.transport
    return sorted(transport.links) if isinstance(transport, SharedTransport) else []


def mixed(group: dist.ProcessGroup, schemes: list[str]) -> tuple[list[int], list[tuple[str, str]]]:
    """Sum on two hosts of two ranks; return the ranks sharing memory, and bits of sums both ways."""
    rank, size = group.rank(), group.size()
    real = shared_memory.host
    shared_memory.host = lambda: bytes([1 + rank // 2]) * 16
    try:
        other = dist.new_group(list(range(size)))  # a communicator of its own
        found = []
        for name in schemes:
            params = {"gpus": 2} if name == "zen_cluster" else {}
            ways = both_ways(zenc.compile(name, ranks=size, params=params), other)
            tensor = sparse_tensor("random", rank, size, 4000, 16, torch.float32, 3)
            shared, wire = (bits(way.all_reduce(tensor)) for way in ways)
            found.append((shared, wire))
        return peers(ways[0]), found
    finally:
        shared_memory.host = real


def killed(group: dist.ProcessGroup, deadline: float) -> tuple[bool, bool, str, float]:
    """Kill rank 1 in a call; return whether memory was shared and messages long, the error, and its seconds."""
    collective = zenc.load("balanced", group, deadline=deadline)
    tensor = torch.ones(1_000_000)
    collective.all_reduce(tensor)
    long = collective.stats["bytes_sent"] > 1_000_000
    started = time.perf_counter()
    if group.rank() == 1:
        send = collective.communicator.transport.send
        collective.communicator.transport.send = lambda *packet: os.kill(os.getpid(), signal.SIGKILL) or send(*packet)
    try:
        collective.all_reduce(tensor)
    except zenc.ZencError as error:
        return bool(peers(collective)), long, str(error), time.perf_counter() - started
    return bool(peers(collective)), long, "", DEADLINE
