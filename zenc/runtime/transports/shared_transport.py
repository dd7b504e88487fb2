"""The transport through shared memory: ranks of one host exchange messages there, and others over the wire.

A sender writes a message to memory that both have mapped, tells the receiver its place, and leaves it there until the
receiver needs it no more: messages made in ``room`` are not copied. Ranks find out whether they share memory when a
communicator is made. Those do that could open each other's files, whatever the names of their hosts.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import torch

from zenc.errors import BuildError, CacheError
from zenc.runtime.cpu.bindings import EntryPoints
from zenc.runtime.transports.block_pool import BlockPool, Lender
from zenc.runtime.transports.shared_memory import (
    INVITATION_BYTES,
    OwnFile,
    PeerFile,
    host_of,
    ring_functions,
    ring_room,
)
from zenc.runtime.transports.transport import SLICE_SECONDS, Pending, Transport, ensure_time

log = logging.getLogger("zenc")
AWAKE_SECONDS = 5e-5
"""Seconds for which a wait stays awake, where each rank has a core to itself."""
CAME, CLOSED, DEAD = 1, -1, -2
"""Results of the kernel ``await``; 0 if nothing came yet."""
Gather = Callable[[bytes], list[bytes]]
"""A function from this rank's bytes to those of all ranks, of equal lengths."""


class PeerLink(Lender):
    """The link with one peer: this rank fills the ``ring`` in the peer's file, and the peer the ring ``incoming``."""

    def __init__(self, functions: EntryPoints, file: PeerFile, incoming: int, awake: float) -> None:
        super().__init__(file.arena.memory)
        self._functions, self._file, self._ring, self._incoming = functions, file, file.ring.address, incoming
        self._await, self._awake = functions["await"], int(awake * 1e9)
        self._sending, self._reading = threading.Lock(), threading.Lock()
        loans: int = functions["most_loans"]()
        self._most_borrowed, self._returned = loans // 2, (ctypes.c_int64 * loans)()
        self._published, self._loans, self._lent = 0, list(range(loans))[::-1], dict[int, torch.Tensor]()
        """Messages so far; free loans, and the messages of the others."""
        self._queue = deque[tuple[int, int, torch.Tensor]]()
        """Messages without a free loan: their tags and offsets."""
        self._read, self._came = 0, dict[int, deque[torch.Tensor]]()
        """Messages so far; and by tag, those that nobody has asked for yet."""

    def send(self, tag: int, offset: int, buffer: torch.Tensor) -> bool:
        """Publish ``buffer`` [bytes], at ``offset`` of the arena; return False if it has to wait for others."""
        with self._sending:
            self._queue.append((tag, offset, buffer))
            return self._flush()

    def flushed(self) -> bool:
        """Return whether all that was sent is published now; raises RuntimeError if the peer is gone."""
        with self._sending:
            if self._flush():
                return True
        found = (ctypes.c_int64 * 4)()
        self._ensure_there(self._await(self._incoming, self._read, self._file.process, 0, 0, found))
        return False

    def _flush(self) -> bool:
        while self._queue:
            if not self._loans:
                self._take_back()
            if not self._loans:
                return False
            tag, offset, buffer = self._queue.popleft()
            loan = self._loans.pop()
            self._lent[loan] = buffer
            self._functions["publish"](self._ring, self._published, loan, tag, offset, buffer.numel())
            self._published += 1
        return True

    def reclaim(self) -> None:
        """Let go of messages that the receiver needs no more."""
        if self._lent:
            with self._sending:
                self._take_back()

    def _take_back(self) -> None:
        count = self._functions["returned"](self._ring, max(self._lent, default=-1) + 1, self._returned)
        for loan in self._returned[:count]:
            del self._lent[loan]
            self._loans.append(loan)

    def receive(self, tag: int, seconds: float) -> torch.Tensor:
        """Return the next message of ``tag`` [bytes], to be read only; raises RuntimeError as ``Pending.wait`` does."""
        found, until = (ctypes.c_int64 * 4)(), 0.0
        while True:
            with self._reading:
                if came := self._came.get(tag):
                    return self._taken(tag, came)
                number = self._read
            slice = int(min(seconds, SLICE_SECONDS) * 1e9)
            status = self._await(self._incoming, number, self._file.process, self._awake, slice, found)
            if status == CAME:
                with self._reading:
                    if number == self._read:
                        packet = self._packet(*found[1:])
                        if found[0] == tag and tag not in self._came:
                            return packet
                        self._came.setdefault(found[0], deque()).append(packet)
                continue
            self._ensure_there(status)
            until = ensure_time(until, seconds, "came through shared memory")

    def _taken(self, tag: int, came: deque[torch.Tensor]) -> torch.Tensor:
        packet = came.popleft()
        if not came:
            del self._came[tag]
        return packet

    def _packet(self, loan: int, offset: int, size: int) -> torch.Tensor:
        """Return the next message: where its sender has written it, or a copy where many are borrowed already."""
        self._read += 1
        if offset < 0 or size < 0 or offset + size > len(self._memory):
            raise RuntimeError(f"a message lies at {offset} of {len(self._memory)} bytes of shared memory")
        if not size:
            self._functions["return"](self._incoming, loan)
            return torch.empty(0, dtype=torch.uint8, device="cpu")
        packet = self.lend(offset, size, loan)
        return packet.clone() if len(self._borrowed) > self._most_borrowed else packet

    def returned(self, at: int, of: int) -> None:
        """Return the loan ``of`` the message to its sender."""
        self._functions["return"](self._incoming, of)

    def _ensure_there(self, status: int) -> None:
        if status == CLOSED:
            raise RuntimeError("the peer has given up, or has ended")
        if status == DEAD:
            raise RuntimeError("the peer's process has ended")

    def close(self) -> None:
        """Tell the peer that nothing comes any more."""
        self._functions["close"](self._ring)


class _Published:
    """A message that is on its way, from ``buffer``."""

    __slots__ = ("buffer", "link")

    def __init__(self, link: PeerLink | None, buffer: torch.Tensor) -> None:
        self.link, self.buffer = link, buffer

    def wait(self, seconds: float) -> torch.Tensor:
        until = time.monotonic() + seconds
        while self.link is not None and not self.link.flushed():
            if time.monotonic() >= until:
                raise RuntimeError(f"the peer has read no message within {seconds:g} s")
            time.sleep(0.001)
        return self.buffer


class _Awaited:
    """A message that is to come."""

    __slots__ = ("link", "tag")

    def __init__(self, link: PeerLink, tag: int) -> None:
        self.link, self.tag = link, tag

    def wait(self, seconds: float) -> torch.Tensor:
        return self.link.receive(self.tag, seconds)


class SharedTransport:
    """The transport of a rank that shares memory with the peers of ``links``; ``wire`` goes to the others."""

    def __init__(self, wire: Transport, own: OwnFile, links: dict[int, PeerLink]) -> None:
        self.rank, self.size, self.wire, self.links = wire.rank, wire.size, wire, links
        self._own: OwnFile | None = own
        self._arena = BlockPool(own.arena.memory, self._reclaim, own.give_back)
        self._first, self._end = own.arena.address, own.arena.address + self._arena.size

    def shares(self, peer: int) -> bool:
        """Return whether ``peer`` shares memory, as ``Transport.shares`` does."""
        return peer in self.links

    def whole(self, peer: int) -> bool:
        """Return whether messages of ``peer`` are one packet, as ``Transport.whole`` does."""
        return peer in self.links or self.wire.whole(peer)

    def room(self, size: int) -> torch.Tensor:
        """Return a tensor [size] of bytes, as ``Transport.room`` does, in memory that peers read."""
        return self._arena.room(size)

    def send(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """Send as ``Transport.send`` does, from ``buffer`` [bytes], copied first unless it was made by ``room``."""
        link = self.links.get(peer)
        if link is None:
            return self.wire.send(peer, tag, buffer)
        address, size = buffer.data_ptr(), buffer.numel()
        if size and not self._first <= address < self._end:
            buffer = self._arena.room(size).copy_(buffer)
            address = buffer.data_ptr()
        return _Published(None if link.send(tag, address - self._first if size else 0, buffer) else link, buffer)

    def receive(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """Receive as ``Transport.receive`` does, into ``buffer`` [bytes] if it comes over the wire."""
        link = self.links.get(peer)
        return self.wire.receive(peer, tag, buffer) if link is None else _Awaited(link, tag)

    def _reclaim(self) -> None:
        for link in self.links.values():
            link.reclaim()

    def close(self) -> None:
        """Let go of peers and wire."""
        for link in self.links.values():
            link.close()
        self.wire.close()

    def release(self) -> None:
        """Release as ``Transport.release`` does; messages to peers lie in memory that these have mapped themselves."""
        self.links, self._first, self._end = {}, 0, 0
        self._arena = BlockPool(memoryview(b""))
        self._own = None
        self.wire.release()


def sharing(wire: Transport, gather: Gather, deadline: float, wanted: bool) -> Transport:
    """Return a transport through memory, by all ranks together, where it is ``wanted`` and possible.

    Otherwise ``wire``.
    """
    if wire.size == 1:
        return wire
    found = _own_file(wire.size, deadline) if wanted else None
    invitations = gather(found[2] if found else bytes(INVITATION_BYTES))
    hosts = [host_of(invitation) for invitation in invitations]
    named = [host for host in hosts if any(host)]
    if len(set(named)) == len(named):
        return wire
    files = _opened(found[0], invitations, wire.rank) if found else {}
    answers = gather(bytes([peer in files for peer in range(wire.size)]))
    mutual = {peer: file for peer, file in files.items() if answers[peer][wire.rank]}
    if found is None:
        return wire
    functions, own, _ = found
    own.close()
    if not mutual:
        return wire
    log.info("rank %d shares memory with ranks %s", wire.rank, ", ".join(map(str, mutual)))
    awake = AWAKE_SECONDS if _cores() > len(mutual) else 0.0
    first, room = own.rings.address, ring_room(functions)
    links = {peer: PeerLink(functions, file, first + peer * room, awake) for peer, file in mutual.items()}
    return SharedTransport(wire, own, links)


_MISSING = (OSError, AttributeError, ValueError)
"""Errors of a call of the system that is missing: in the kernel, by a filter, or in this Python."""


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except _MISSING:
        return 1


def _own_file(ranks: int, deadline: float) -> tuple[EntryPoints, OwnFile, bytes] | None:
    """Return the compiled functions, a file and its invitation; None without one of them."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        functions = ring_functions(deadline)
        own = OwnFile(functions, ranks)
        return functions, own, own.invitation()
    except (*_MISSING, BuildError, CacheError) as problem:
        log.info("ranks of this host exchange over the wire: %s", problem)
        return None


def _opened(functions: EntryPoints, invitations: Sequence[bytes], rank: int) -> dict[int, PeerFile]:
    """Return the files of the peers on this host, as far as they can be opened."""
    files = {}
    for peer, invitation in enumerate(invitations):
        if peer != rank and host_of(invitation) == host_of(invitations[rank]):
            try:
                files[peer] = PeerFile(functions, invitation, len(invitations), rank)
            except _MISSING as problem:
                log.info("rank %d shares no memory with rank %d: %s", rank, peer, problem)
    return files
