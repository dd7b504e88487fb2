"""Connections of all ranks of a group with each other, which they make together after gloo has connected them.

A rank listens at the address at which its gloo group does, which peers can reach, and tells them the port and a
token of 16 random bytes. The higher rank connects, and shows the token (``Admission``). If any two can't, all
stay with gloo.
"""

from __future__ import annotations

import errno
import hmac
import logging
import mmap
import os
import secrets
import selectors
import socket
import stat
import struct
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress

from zenc.errors import BuildError, CacheError
from zenc.runtime.cpu.bindings import EntryPoints
from zenc.runtime.transports.socket_transport import SocketTransport, hub_functions, room_of_machine
from zenc.runtime.transports.transport import Transport

TOKEN_BYTES = 16
MOST_UNKNOWN = 64
"""Most connections that have not shown a rank, beside those of ranks; the oldest goes when there is one more."""
_GREETING = struct.Struct(f"<{TOKEN_BYTES}sI")
"""The token of the listening rank, and the number of the connecting one."""


def greeting(token: bytes, rank: int) -> bytes:
    """Return the greeting of ``rank`` to the peer with ``token``."""
    return _GREETING.pack(token, rank)


class Admission:
    """The admission of the ``expected`` ranks, which know ``token``, at the socket ``listener``."""

    def __init__(self, listener: socket.socket, token: bytes, expected: Collection[int]) -> None:
        self._listener, self._token, self._expected = listener, token, set(expected)
        self._most = len(expected) + MOST_UNKNOWN
        self._too_few: OSError | None = None
        """The error of a process that has as many files open as it may."""
        self._said: dict[socket.socket, bytes] = {}
        """Bytes that each unknown connection has sent so far, the oldest first."""
        self.peers: dict[int, socket.socket] = {}
        """Connections of ranks, by rank."""

    def admit(self, until: float) -> None:
        """Take in the expected ranks as they come, ``until`` a time of ``time.monotonic``; raises OSError."""
        self._listener.setblocking(False)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._listener, selectors.EVENT_READ)
                while len(self.peers) < len(self._expected) and (left := until - time.monotonic()) > 0:
                    for key, _ in selector.select(left):
                        self._look(key.fileobj, selector)
        finally:
            for each in self._said:
                each.close()
        if self._too_few is not None and len(self.peers) < len(self._expected):
            raise self._too_few

    def _look(self, at: object, selector: selectors.BaseSelector) -> None:
        if at is self._listener:
            self._accept(selector)
        elif isinstance(at, socket.socket) and at in self._said and self._is_over(at):
            selector.unregister(at)
            self._finish(at)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            came, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):  # it has gone away again
            return
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._said:
                raise
            self._spare_files(error, selector)
            return
        came.setblocking(False)
        self._said[came] = b""
        selector.register(came, selectors.EVENT_READ)
        if len(self._said) > self._most:
            self._send_oldest_away(selector)

    def _spare_files(self, error: OSError, selector: selectors.BaseSelector) -> None:
        """Keep half of the strangers that have taken all remaining files: ranks, and this process, need some."""
        self._too_few, self._most = error, len(self._said) // 2
        while len(self._said) > self._most:
            self._send_oldest_away(selector)

    def _send_oldest_away(self, selector: selectors.BaseSelector) -> None:
        oldest = next(iter(self._said))
        selector.unregister(oldest)
        self._finish(oldest)

    def _is_over(self, visitor: socket.socket) -> bool:
        """Return whether a visitor has sent the length of a greeting, or nothing more will come."""
        said = self._said[visitor]
        try:
            more = visitor.recv(_GREETING.size - len(said))
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            more = b""
        self._said[visitor] = said = said + more
        return not more or len(said) == _GREETING.size

    def _finish(self, visitor: socket.socket) -> None:
        said = self._said.pop(visitor).ljust(_GREETING.size, b"\0")
        shown, rank = _GREETING.unpack(said)
        if hmac.compare_digest(shown, self._token) and rank in self._expected and rank not in self.peers:
            self.peers[rank] = visitor
        else:
            visitor.close()


log = logging.getLogger("zenc")
CONNECT_SECONDS = 10.0
"""Most seconds that ranks try to connect."""
_INVITATION = struct.Struct(f"<{TOKEN_BYTES}s46sH")
"""A token, an address in text, and a port; zeros for a rank that does not want connections."""
Gather = Callable[[bytes], list[bytes]]
"""A function from this rank's bytes to those of all ranks, of equal lengths."""


def listening() -> set[int]:
    """Return the files of this process that are sockets at which it listens for TCP."""
    found = set()
    with suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode) and _listens(int(name)):
                    found.add(int(name))
    return found


def _listens(file: int) -> bool:
    with socket.socket(fileno=os.dup(file)) as of:
        is_tcp = of.family in (socket.AF_INET, socket.AF_INET6) and of.type == socket.SOCK_STREAM
        return is_tcp and bool(of.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def address_of(files: Collection[int]) -> str:
    """Return the address where this process listens with the only one of ``files``; empty if that is not clear."""
    if len(files) != 1:
        return ""
    with socket.socket(fileno=os.dup(next(iter(files)))) as of:
        name: str = of.getsockname()[0]
        return name


def connected(wire: Transport, address: str, gather: Gather, deadline: float) -> Transport:
    """Return a transport over connections of this rank with all others, or ``wire``; by all ranks together.

    ``address`` is one at which peers reach this rank; empty if it does not want connections.
    """
    if wire.size == 1:
        return wire
    with ExitStack() as made:
        listener = _listener(address, wire.size + MOST_UNKNOWN) if address else None
        needed, token = None, secrets.token_bytes(TOKEN_BYTES)
        if listener is not None:
            made.enter_context(listener)
            needed = _needed(deadline)
        told = _INVITATION.pack(bytes(TOKEN_BYTES), b"", 0)
        if listener is not None and needed is not None:
            told = _INVITATION.pack(token, address.encode(), listener.getsockname()[1])
        invitations = [_INVITATION.unpack(each) for each in gather(told)]
        if listener is None or needed is None or not all(port for *_, port in invitations):
            return wire
        peers = _met(listener, token, invitations, wire.rank, min(deadline, CONNECT_SECONDS))
        for peer in peers.values():
            made.enter_context(peer)
        own = _transport(needed, wire, peers)
        if set(gather(bytes([own is not None]))) == {b"\1"} and own is not None:
            return own
        if own is not None:
            own.close()
            own.release()
        log.info("rank %d: messages go over gloo, since some ranks could not connect", wire.rank)
        return wire


def _transport(
    needed: tuple[EntryPoints, mmap.mmap], wire: Transport, peers: Mapping[int, socket.socket]
) -> SocketTransport | None:
    """Return the transport over the connections to all ``peers`` by rank, which it takes over; None if it fails."""
    files = [peers[peer].fileno() if peer in peers else -1 for peer in range(wire.size)]
    try:
        made = SocketTransport(*needed, wire.rank, files) if len(peers) == wire.size - 1 else None
    except OSError as problem:
        log.info("rank %d: messages go over gloo: %s", wire.rank, problem)
        return None
    for peer in peers.values() if made else ():
        peer.detach()
    return made


def _needed(deadline: float) -> tuple[EntryPoints, mmap.mmap] | None:
    try:
        return hub_functions(deadline), room_of_machine()
    except (BuildError, CacheError, OSError, ValueError) as problem:
        log.info("messages go over gloo: %s", problem)
        return None


def _listener(address: str, backlog: int) -> socket.socket | None:
    try:
        made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        made.bind((address, 0))
        made.listen(backlog)
        return made
    except OSError as problem:
        log.info("messages go over gloo: %s", problem)
        return None


def _met(
    listener: socket.socket, token: bytes, invitations: Sequence[tuple[bytes, bytes, int]], rank: int, seconds: float
) -> dict[int, socket.socket]:
    """Return the connections to the peers, by rank, as far as they could be made in time."""
    peers: dict[int, socket.socket] = {}
    until = time.monotonic() + seconds
    visitors = Admission(listener, token, range(rank + 1, len(invitations)))
    try:
        for peer, (of_peer, address, port) in enumerate(invitations[:rank]):
            left = max(0.001, until - time.monotonic())
            peers[peer] = socket.create_connection((address.rstrip(b"\0").decode(), port), left)
            peers[peer].sendall(greeting(of_peer, rank))
        visitors.admit(until)
    except OSError as problem:
        log.info("rank %d can't connect: %s", rank, problem)
    peers.update(visitors.peers)
    for each in peers.values():
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        each.setblocking(False)
    return peers
