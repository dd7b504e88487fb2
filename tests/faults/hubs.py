"""Hubs: the C++ of ``templates/cpu/zenc_cpu/sockets`` as ranks have it, over the simulated links.

    hub of a rank = socket = wire of the network ~ link, in time ~ wire = socket = hub of its peer

The network has the other end of each socket: it takes the bytes that a hub has written, and delivers them, perhaps
damaged, to the peer's when the link says so. Hubs are polled without waiting, so that the clock is the simulator's.
"""

from __future__ import annotations

import fcntl
import mmap
import select
import socket
import struct
import termios
from functools import partial

import torch

from tests.faults.network import Group
from tests.faults.streams import Sent, StreamTransport
from zenc.runtime.transports.block_pool import NO_RESERVE
from zenc.runtime.transports.socket_transport import SocketTransport, hub_functions
from zenc.wire.constants import MAGIC
from zenc.wire.structs import MESSAGE_HEADER, MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES, offset_of

FRAME_BYTES = 16
ROOM = 1 << 28
"""Bytes for incoming messages, most of which are never written to."""
NOBODY = (1 << 31) - 1
"""A tag that no message has."""
LOOK = 100_000
"""Nanoseconds of a poll."""
MOST_LOOKS = 200
"""Most polls of a hub for bytes in its socket."""


class HubExpected:
    """A message of ``tag`` expected from ``peer``."""

    def __init__(self, of: HubTransport, peer: int, tag: int) -> None:
        self.of, self.peer, self.tag = of, peer, tag
        self.came: torch.Tensor | None = None
        self.error = ""

    def wait(self, seconds: float) -> torch.Tensor:
        network = self.of.group.network
        network.longest_asked = max(network.longest_asked, seconds)
        if not network.run.wait(self.of.waiting, self._is_over, seconds):
            raise RuntimeError(f"nothing came within {seconds:g} s")
        if self.came is None:
            raise RuntimeError(self.error)
        return self.came

    def _is_over(self) -> bool:
        if self.came is None and not self.error:
            try:
                self.came = self.of.hub.wait_message(self.peer, self.tag, 0.0).clone()
            except RuntimeError as error:
                self.error = "" if "within" in str(error) and not self.of.closed else str(error)
        return self.came is not None or bool(self.error)


class HubTransport(StreamTransport):
    """The transport of a rank of ``group``: a hub whose sockets end in the network."""

    def __init__(self, group: Group) -> None:
        self.wires: dict[int, socket.socket] = {}
        self.closed = False
        files = []
        for peer in range(group.network.size):
            if peer != group.own:
                own, self.wires[peer] = socket.socketpair()
                self.wires[peer].setblocking(False)
                files.append(own.detach())
            else:
                files.append(-1)
        room = mmap.mmap(-1, ROOM, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
        self.hub = SocketTransport(hub_functions(), room, group.own, files)
        super().__init__(group)

    def send(self, peer: int, tag: int, buffer: torch.Tensor) -> Sent:  # type: ignore[override]
        group = self.group
        group.network.touched(group.process)
        if peer in self.gone or self.closed:
            return Sent(buffer, True)
        try:
            self.hub.send(peer, tag, buffer).wait(0.0)
        except RuntimeError as error:
            if "given up" in str(error):
                return Sent(buffer, True)
        data = self._written(peer, FRAME_BYTES + buffer.numel())
        for at, flip in group.network.damages.pop((self.rank, peer), ()):
            data[at % _damageable(data)] ^= flip
        arrival = group.network.links[self.rank, peer].arrival()
        group.network.run.at(arrival, partial(_land, group.peer(peer), self.rank, bytes(data)))
        return Sent(buffer, False)

    def receive(self, peer: int, tag: int, buffer: torch.Tensor) -> HubExpected:  # type: ignore[override]
        self.group.network.touched(self.group.process)
        return HubExpected(self, peer, tag)

    def _written(self, peer: int, size: int) -> bytearray:
        """Return the ``size`` bytes that the hub has written for ``peer``."""
        wire, data = self.wires[peer], bytearray()
        while len(data) < size:
            assert select.select([wire], [], [], 10)[0], "a hub does not write what it was given"
            data += wire.recv(size - len(data))
        return data

    def arrived(self, peer: int, data: bytes) -> None:
        """Deliver bytes, which the hub reads as far as it will."""
        wire, left = self.wires[peer], memoryview(data)
        for _ in range(MOST_LOOKS):
            try:
                left = left[wire.send(left) :] if left else left
            except BlockingIOError:
                pass
            except OSError:
                break  # the hub has given up the connection
            if self.closed or not (left or _unread(wire)) or not self._looked(peer):
                break
        self._wake()

    def _looked(self, peer: int) -> bool:
        """Let the hub read, and return whether the connection is there."""
        found = self.hub._of_thread()
        return bool(self.hub._await(self.hub._hub, peer, NOBODY, LOOK, found) == 0)

    def lost(self, peer: int) -> None:
        if peer not in self.gone:
            self.wires[peer].close()
            for _ in range(MOST_LOOKS):
                if self.closed or not self._looked(peer):
                    break
        super().lost(peer)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.hub.close()
            super().close()
            self.hub.release()


def _damageable(data: bytearray) -> int:
    """Return the bytes of headers at the beginning of ``data``: damage behind them can't be told from good values."""
    if data[FRAME_BYTES : FRAME_BYTES + len(MAGIC)] != MAGIC:
        return FRAME_BYTES
    (segments,) = struct.unpack_from("<I", data, FRAME_BYTES + offset_of(MESSAGE_HEADER, "segments"))
    return FRAME_BYTES + MESSAGE_HEADER_BYTES + segments * SEGMENT_HEADER_BYTES


def _unread(wire: socket.socket) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(wire, termios.TIOCOUTQ, bytes(4)))
    return int(count)


def _land(to: Group, peer: int, data: bytes) -> None:
    stream = to.stream
    if isinstance(stream, HubTransport):
        if peer not in stream.gone:
            stream.arrived(peer, data)
    elif stream is None:
        to.early.append(partial(_land, to, peer, data))
