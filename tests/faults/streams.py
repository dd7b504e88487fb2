"""Streams: connections of zenc's own, as ``SocketTransport`` and shared memory have them, over the simulated links.

A message is one packet of any length, which its sender gives away at once; messages sent before a side closes still
arrive. A timeout closes nothing.
"""

from __future__ import annotations

from collections import defaultdict, deque
from functools import partial

import torch

from tests.faults.network import Group
from tests.faults.scheduler import Fiber


class Expected:
    """A message of ``tag`` expected from ``peer``."""

    def __init__(self, transport: StreamTransport, peer: int, tag: int) -> None:
        self.transport, self.peer, self.tag = transport, peer, tag

    def wait(self, seconds: float) -> torch.Tensor:
        of, came = self.transport, self.transport.came[self.peer, self.tag]
        network = of.group.network
        network.longest_asked = max(network.longest_asked, seconds)
        if not network.run.wait(of.waiting, lambda: bool(came) or self.peer in of.gone, seconds):
            raise RuntimeError(f"nothing came within {seconds:g} s")
        if not came:
            raise RuntimeError("the peer has given up, or has ended")
        return came.popleft()


class Sent:
    """A message that is on its way, or could not be sent."""

    def __init__(self, buffer: torch.Tensor, gone: bool) -> None:
        self.buffer, self.gone = buffer, gone

    def wait(self, seconds: float) -> torch.Tensor:
        if self.gone:
            raise RuntimeError("the peer has given up, or has ended")
        return self.buffer


class StreamTransport:
    """The transport of the rank of ``group``, beside it."""

    def __init__(self, group: Group) -> None:
        self.group, self.rank, self.size = group, group.own, group.network.size
        self.came: dict[tuple[int, int], deque[torch.Tensor]] = defaultdict(deque)
        self.gone: set[int] = set()
        self.waiting: list[Fiber] = []
        group.stream = self
        for event in group.early:
            event()

    def shares(self, peer: int) -> bool:
        return False

    def whole(self, peer: int) -> bool:
        return True

    def room(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8)

    def send(self, peer: int, tag: int, buffer: torch.Tensor) -> Sent:
        group = self.group
        group.network.touched(group.process)
        if peer not in self.gone:
            to, arrival = group.peer(peer), group.network.links[self.rank, peer].arrival()
            group.network.run.at(arrival, partial(_land, to, self.rank, tag, buffer.clone()))
        return Sent(buffer, peer in self.gone)

    def receive(self, peer: int, tag: int, buffer: torch.Tensor) -> Expected:
        self.group.network.touched(self.group.process)
        return Expected(self, peer, tag)

    def lost(self, peer: int) -> None:
        """Receive nothing from ``peer`` any more."""
        self.gone.add(peer)
        self._wake()

    def landed(self, peer: int, tag: int, packet: torch.Tensor) -> None:
        """Take a ``packet``."""
        self.came[peer, tag].append(packet)
        self._wake()

    def _wake(self) -> None:
        for fiber in list(self.waiting):
            self.group.network.run.wake(fiber)

    def release(self) -> None:
        """Release nothing."""

    def close(self) -> None:
        """End all waits, and tell the peers, after the messages sent."""
        group = self.group
        for peer in range(self.size):
            if peer != self.rank and peer not in self.gone:
                self.lost(peer)
                arrival = group.network.links[self.rank, peer].arrival()
                group.network.run.at(arrival, partial(_lose, group.peer(peer), self.rank))


def _land(to: Group, peer: int, tag: int, packet: torch.Tensor) -> None:
    if to.stream is not None and peer not in to.stream.gone:
        to.stream.landed(peer, tag, packet)
    elif to.stream is None:
        to.early.append(partial(_land, to, peer, tag, packet))


def _lose(to: Group, peer: int) -> None:
    if to.stream is not None:
        to.stream.lost(peer)
    else:
        to.early.append(partial(_lose, to, peer))
