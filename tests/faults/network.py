"""The simulated network: links between ranks, and groups of connections over them that behave as those of gloo.

    Network = Link*      one for each ordered pair of ranks; bytes on a link arrive in order
    Group   = Side*      the connections of one rank to each other one, of one generation of the group

As torch's ProcessGroupGloo, as tried with real processes:

* A message waits at its sender until the receiver has asked for its tag. Some seeds have room in buffers on the way, as
  shared memory has; what lies there is good also when its sender has ended.
* A rank that has waited in vain has all its connections of the group closed; so has a process that ends.
* On a closed connection, ``send`` and ``recv`` raise RuntimeError where they are called, and waits do at once, but for
  those of packets that were on their way: nobody ends them before their time.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from tests.faults.streams import StreamTransport
from tests.faults.scheduler import Fiber, Process, Scheduler
from zenc.runtime.transports.gloo_transport import NEVER_SENT

GONE = "Connection closed by peer"


@dataclass(frozen=True)
class Weather:
    """Conditions of all links: ``latency`` seconds, each message's up to twice that, now and then ``spike`` times that.
    ``room``: messages that are taken from a sender before its peer asks for them.
    """

    latency: float = 0.01
    spike: float = 1.0
    room: int = 0


class Link:
    """The way from one rank to another. ``stalls``: intervals in which nothing arrives."""

    def __init__(self, run: Scheduler, weather: Weather) -> None:
        self.run, self.weather = run, weather
        self.last = 0.0
        self.stalls: list[tuple[float, float]] = []
        self.under_way = 0

    def arrival(self) -> float:
        """Return when a message sent now arrives, in order; infinite if it never does."""
        random, weather = self.run.random.random, self.weather
        takes = weather.latency * (0.5 + 1.5 * random())
        if weather.spike > 1 and random() < 0.05:
            takes *= weather.spike
        time = max(self.last, self.run.now + takes)
        for begin, end in sorted(self.stalls):
            if begin <= time < end:
                time = end
        self.last = time
        return time


class Operation:
    """A send or receive, or a rank's part of a collective, as ``torch.distributed.Work``."""

    def __init__(self, group: Group, peer: int, buffer: torch.Tensor | None) -> None:
        self.group, self.peer, self.buffer = group, peer, buffer
        self.done, self.failed = False, ""
        self.partly = False
        """Mark of a receive with a packet on its way."""
        self.waiting: list[Fiber] = []

    def end(self, failed: str = "") -> None:
        """End the operation, well or not."""
        if not self.done and not self.failed:
            self.done, self.failed = not failed, failed
            for fiber in list(self.waiting):
                self.group.network.run.wake(fiber)

    def _over(self) -> bool:
        return self.done or bool(self.failed)

    def wait(self, timeout: timedelta | None = None) -> bool:
        group = self.group
        seconds = group.timeout if timeout is None else timeout.total_seconds()
        group.network.longest_asked = max(group.network.longest_asked, seconds)
        if not group.network.run.wait(self.waiting, self._over, seconds):
            self.failed = f"Timed out waiting {seconds * 1000:.0f}ms for an operation with rank {self.peer}"
            group.close_all("Application timeout caused pair closure")
        if self.failed:
            raise RuntimeError(self.failed)
        return True


@dataclass
class Side:
    """An end of a connection."""

    closed: str = ""
    posted: dict[int, deque[Operation]] = field(default_factory=lambda: defaultdict(deque))
    arrived: dict[int, deque[torch.Tensor]] = field(default_factory=lambda: defaultdict(deque))
    unsent: dict[int, deque[tuple[torch.Tensor, Operation]]] = field(default_factory=lambda: defaultdict(deque))
    flying: list[Operation] = field(default_factory=list)
    """Sends that end when they arrive."""

    def close(self, why: str) -> None:
        if not self.closed:
            self.closed = why
            pending = [op for ops in self.posted.values() for op in ops if not op.partly]
            pending += [op for ops in self.unsent.values() for _, op in ops]
            for operation in pending:
                operation.end(why)
            for of in (self.posted, self.unsent, self.flying):
                of.clear()
            if why != GONE:
                self.arrived.clear()

    @property
    def idle(self) -> bool:
        """True if no message is under way on the connection."""
        posted = any(asked for tag, asked in self.posted.items() if tag != NEVER_SENT)
        return not (posted or any(self.unsent.values()) or any(self.arrived.values()))


class Group:
    """A rank's end of the connections of one generation: the part of ProcessGroupGloo that zenc uses."""

    def __init__(self, network: Network, process: Process, generation: int, timeout: float) -> None:
        self.network, self.process, self.generation, self.timeout = network, process, generation, timeout
        self.own = process.rank
        self.sides = [Side() for _ in range(network.size)]
        self.collectives = 0
        self.stream: StreamTransport | None = None
        self.early: list[Callable[[], None]] = []
        self.parts: dict[int, dict[int, torch.Tensor]] = defaultdict(dict)
        self.gathering: dict[int, tuple[Operation, Callable[[dict[int, torch.Tensor]], None]]] = {}

    def rank(self) -> int:
        return self.own

    def size(self) -> int:
        return self.network.size

    def peer(self, rank: int) -> Group:
        return self.network.groups[self.generation][rank]

    def _side(self, peer: int) -> Side:
        side = self.sides[peer]
        if side.closed:
            raise RuntimeError(side.closed)
        return side

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Operation:
        self.network.touched(self.process)
        side, operation = self._side(peer), Operation(self, peer, tensors[0])
        link = self.network.links[self.own, peer]
        if self.peer(peer).sides[self.own].posted[tag]:
            self._fly(side, link, tag, tensors[0], operation)
        elif link.under_way < link.weather.room:
            link.under_way += 1
            self._fly(side, link, tag, tensors[0], operation)
            operation.end()
        else:
            side.unsent[tag].append((tensors[0], operation))
        return operation

    def _fly(self, side: Side, link: Link, tag: int, data: torch.Tensor, operation: Operation) -> None:
        side.flying.append(operation)
        asked = self.peer(operation.peer).sides[self.own].posted[tag]
        if asked:
            asked[0].partly = True
        packet = data.clone()
        self.network.run.at(
            link.arrival(), partial(self._land, side, tag, packet, operation, self.peer(operation.peer))
        )

    def _land(self, side: Side, tag: int, packet: torch.Tensor, operation: Operation, to: Group) -> None:
        early = operation.done
        if operation in side.flying:
            side.flying.remove(operation)
            operation.end()
        there = to.sides[self.own]
        if there.closed:
            return
        if there.posted[tag]:
            self.network.links[self.own, to.own].under_way -= early
            self.network.take(packet, there.posted[tag].popleft())
        else:
            there.arrived[tag].append(packet)

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Operation:
        operation, link = Operation(self, peer, tensors[0]), self.network.links[peer, self.own]
        self.network.touched(self.process)
        if self.sides[peer].arrived[tag]:
            link.under_way -= 1
            self.network.take(self.sides[peer].arrived[tag].popleft(), operation)
            return operation
        side = self._side(peer)
        there = self.peer(peer).sides[self.own]
        side.posted[tag].append(operation)
        if there.unsent[tag] and not there.closed:
            self.peer(peer)._fly(there, link, tag, *there.unsent[tag].popleft())
        return operation

    def allgather(self, output: list[list[torch.Tensor]], tensors: list[torch.Tensor]) -> Operation:
        def finish(parts: dict[int, torch.Tensor]) -> None:
            for rank, into in enumerate(output[0]):
                into.copy_(parts[rank])

        return self._together(tensors[0], finish)

    def allreduce(self, tensors: list[torch.Tensor]) -> Operation:
        def finish(parts: dict[int, torch.Tensor]) -> None:
            tensors[0].copy_(torch.stack([parts[rank] for rank in sorted(parts)]).sum(0, dtype=tensors[0].dtype))

        return self._together(tensors[0], finish)

    def _together(self, own: torch.Tensor, finish: Callable[[dict[int, torch.Tensor]], None]) -> Operation:
        self.network.touched(self.process)
        number, self.collectives = self.collectives, self.collectives + 1
        operation = Operation(self, self.own, own)
        self.gathering[number] = operation, finish
        closed = [side.closed for peer, side in enumerate(self.sides) if peer != self.own and side.closed]
        if closed:
            raise RuntimeError(closed[0])
        packet = own.clone()
        self._came(number, self.own, packet)
        for peer in range(self.network.size):
            if peer != self.own:
                time = self.network.links[self.own, peer].arrival()
                self.network.run.at(time, partial(self.peer(peer)._came, number, self.own, packet))
        return operation

    def _came(self, number: int, rank: int, packet: torch.Tensor) -> None:
        if not self.sides[rank].closed:
            self.parts[number][rank] = packet
            self._gathered(number)

    def _gathered(self, number: int) -> None:
        waits, parts = self.gathering.get(number), self.parts[number]
        if waits and len(parts) == self.network.size:
            del self.gathering[number], self.parts[number]
            operation, finish = waits
            if len({packet.shape for packet in parts.values()}) > 1:
                operation.end("the ranks gather tensors of other sizes")
            else:
                finish(parts)
                operation.end()

    def abort(self) -> None:
        """Do nothing, as gloo's does for operations under way."""

    def close_all(self, why: str) -> None:
        """End all connections of this rank, of which the peers learn."""
        for peer in range(self.network.size):
            if peer != self.own:
                self.close_one(peer, why)

    def close_one(self, peer: int, why: str) -> None:
        """End the connection to ``peer``, which learns of it after the messages under way to it."""
        if not self.sides[peer].closed:
            self.closed_by(peer, why)
            to = self.network.groups[self.generation].get(peer)
            if to is not None:
                self.network.run.at(self.network.links[self.own, peer].arrival(), partial(to.closed_by, self.own, GONE))

    def closed_by(self, peer: int, why: str) -> None:
        """Drop the connection to ``peer``."""
        self.sides[peer].close(why)
        for number, (operation, _) in list(self.gathering.items()):
            if peer not in self.parts[number]:
                del self.gathering[number]
                operation.end(why)

    @property
    def idle(self) -> bool:
        """True if nothing is under way to or from this rank."""
        came = self.stream is not None and any(self.stream.came.values())
        return all(side.idle for side in self.sides) and not self.gathering and not came


class Network:
    """Simulated links, and groups by generation and rank. ``on_touch`` gets each operation of a process."""

    def __init__(self, run: Scheduler, size: int, weather: Weather) -> None:
        self.run, self.size = run, size
        self.links = {(a, b): Link(run, weather) for a in range(size) for b in range(size) if a != b}
        self.groups: dict[int, dict[int, Group]] = defaultdict(dict)
        self._meeting: dict[int, list[Fiber]] = defaultdict(list)
        self.on_touch: Callable[[Process], None] = lambda _: None
        self.too_small: list[str] = []
        self.longest_asked = 0.0
        self.damages: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        """Damage to the next message between two ranks: bytes, and the bits of each that are flipped."""

    def touched(self, process: Process) -> None:
        """Note a point where something may happen to ``process``."""
        self.on_touch(process)
        self.run.pause()

    def take(self, packet: torch.Tensor, operation: Operation) -> None:
        """Take ``packet`` for ``operation``."""
        buffer = operation.buffer
        assert buffer is not None
        if packet.numel() > buffer.numel():
            self.too_small.append(f"{packet.numel()} bytes for a buffer of {buffer.numel()}, at which gloo aborts")
            operation.end("the buffer is too small")
            return
        buffer[: packet.numel()] = packet
        operation.end()

    def join(self, process: Process, generation: int, timeout: float) -> Group:
        """Return the group of ``generation`` when all ranks have come; raise RuntimeError if they do not in time."""
        group = Group(self, process, generation, timeout)
        there = self.groups[generation]
        there[process.rank] = group
        waiting = self._meeting[generation]
        if len(there) == self.size:
            for fiber in list(waiting):
                self.run.wake(fiber)
        if not self.run.wait(waiting, lambda: len(there) == self.size, timeout):
            there.pop(process.rank, None)
            raise RuntimeError(f"Timed out after {timeout:g} seconds waiting for clients")
        return group

    def end_of(self, process: Process, closes: bool) -> None:
        """Remove ``process``; its connections are closed where its host still runs."""
        process.dead = True
        for of_generation in self.groups.values():
            group = of_generation.get(process.rank)
            if group is not None and group.process is process and closes:
                group.close_all("the process has ended")
                if group.stream is not None:
                    group.stream.close()

    def stall(self, src: int, dst: int, seconds: float) -> None:
        """Let nothing from ``src`` arrive at ``dst`` for ``seconds``."""
        self.links[src, dst].stalls.append((self.run.now, self.run.now + seconds))

    def cut(self, a: int, b: int) -> None:
        """Reset the connections between two ranks, at both ends."""
        for of_generation in self.groups.values():
            for own, peer in ((a, b), (b, a)):
                if own in of_generation:
                    of_generation[own].closed_by(peer, "Connection reset by peer")
                    stream = of_generation[own].stream
                    if stream is not None:
                        stream.lost(peer)
