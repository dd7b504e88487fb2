"""Admission of peers that connect: they show a token and their rank, before any byte is read as a message.

    greeting = token rank          # from the connecting rank to the listening one; there is no answer

Anybody on the network can connect. A stranger is sent away when it has sent something else, and holds nobody up: all
connections are read at once, and silent ones wait until the ranks are there, or there are too many.
"""

from __future__ import annotations

import errno
import hmac
import selectors
import socket
import struct
import time
from collections.abc import Collection

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
