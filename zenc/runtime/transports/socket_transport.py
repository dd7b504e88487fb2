"""The transport over TCP connections, one for each pair of ranks: a message is one packet, of any length.

    stream of a connection = (frame message)*      frame = mark tag bytes      # templates/cpu/zenc_cpu/sockets

A thread that waits for a message reads the connection, and one that sends a message writes it: no thread stands in
between, nobody asks first whether the receiver is ready, and no length has to be known. Messages go to blocks of memory
whose pages stay.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from array import array
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

import torch

from zenc.codegen.build.build_once import DEADLINE_SECONDS
from zenc.codegen.build.host import build_file
from zenc.runtime.cpu.bindings import EntryPoints, Function, entry_points
from zenc.runtime.transports.block_pool import NO_RESERVE, Lender, own_room
from zenc.runtime.transports.transport import SLICE_SECONDS, Done, Pending, ensure_time

DONE, CLOSED, DAMAGED = 1, -1, -2
"""Results of waits; 0 if it is not over yet."""


@cache
def hub_functions(deadline_s: float = DEADLINE_SECONDS) -> EntryPoints:
    """Return the C entry points of ``templates/cpu/sockets.cpp``, compiled unless the cache has them.

    Raises BuildError and CacheError.
    """
    return entry_points(build_file("cpu/sockets.cpp", deadline_s=deadline_s, scheme="messages over TCP"))


def room_of_machine() -> mmap.mmap:
    """Return as many bytes as this machine has, which take memory when they are first written to; raises OSError."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)


class _Sending:
    """Message ``number`` to ``peer``, sent in part; -1: that of a connection that is gone."""

    __slots__ = ("buffer", "number", "peer", "transport")

    def __init__(self, transport: SocketTransport, peer: int, number: int, buffer: torch.Tensor) -> None:
        self.transport, self.peer, self.number, self.buffer = transport, peer, number, buffer

    def wait(self, seconds: float) -> torch.Tensor:
        self.transport.wait_sent(self.peer, self.number, seconds)
        return self.buffer


class _Expected:
    """A message of ``tag`` that is to come from ``peer``."""

    __slots__ = ("peer", "tag", "transport")

    def __init__(self, transport: SocketTransport, peer: int, tag: int) -> None:
        self.transport, self.peer, self.tag = transport, peer, tag

    def wait(self, seconds: float) -> torch.Tensor:
        return self.transport.wait_message(self.peer, self.tag, seconds)


class SocketTransport(Lender):
    """The transport of ``rank`` over the connections ``files``, one of each peer, by rank; -1 in its own place.

    The files are its own from here on, and so is the ``room`` for messages. If it raises OSError it takes none of them.
    """

    def __init__(self, functions: EntryPoints, room: mmap.mmap, rank: int, files: Sequence[int]) -> None:
        self.rank, self.size = rank, len(files)
        memory = len(room)
        whole = (ctypes.c_uint8 * memory).from_buffer(room)
        address, given = ctypes.addressof(whole), array("q", files)
        self._hub: int = functions["hub_open"](self.size, given.buffer_info()[0], address, memory)
        if self._hub < 0:
            raise OSError(-self._hub, os.strerror(-self._hub))
        weakref.finalize(whole, _end, functions["hub_delete"], self._hub, os.getpid()).atexit = False
        super().__init__(memoryview(whole).cast("B"))
        self._send, self._sent, self._close = functions["hub_send"], functions["hub_sent"], functions["hub_close"]
        self._await, self._return = functions["hub_await"], functions["hub_give_back"]
        self._files = tuple([file for file in files if file >= 0])
        _open.add(self)
        self._found = threading.local()

    def shares(self, peer: int) -> bool:
        """Return False: no ``peer`` shares memory."""
        return False

    def whole(self, peer: int) -> bool:
        """Return True: messages of every ``peer`` are one packet."""
        return True

    def room(self, size: int) -> torch.Tensor:
        """Return a tensor [size] of bytes, as ``Transport.room`` does."""
        return own_room(size)

    def send(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """Send as ``Transport.send`` does, from ``buffer`` [bytes]."""
        number = self._send(self._hub, peer, tag, buffer.data_ptr(), buffer.numel())
        return Done(buffer) if number == 0 else _Sending(self, peer, number, buffer)

    def receive(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """Receive as ``Transport.receive`` does; ``buffer`` [bytes] is not used."""
        return _Expected(self, peer, tag)

    def wait_message(self, peer: int, tag: int, seconds: float) -> torch.Tensor:
        """Return the next message of ``tag`` [bytes] from ``peer``; raises RuntimeError as ``Pending.wait`` does."""
        found = self._of_thread()
        at_once, until = int(min(seconds, SLICE_SECONDS) * 1e9), 0.0
        while not (status := self._await(self._hub, peer, tag, at_once, found)):
            until = ensure_time(until, seconds, "came")
        _ensure_open(status)
        at, size = found
        if size:
            return self.lend(at, size)
        self.returned(at)
        return torch.empty(0, dtype=torch.uint8, device="cpu")

    def _of_thread(self) -> ctypes.Array[ctypes.c_int64]:
        """Return room for an offset and a size, of this thread."""
        found: ctypes.Array[ctypes.c_int64] | None = getattr(self._found, "room", None)
        if found is None:
            found = self._found.room = (ctypes.c_int64 * 2)()
        return found

    def wait_sent(self, peer: int, number: int, seconds: float) -> None:
        """Wait until message ``number`` to ``peer`` is on its way; raises RuntimeError as ``Pending.wait``."""
        _ensure_open(number)
        at_once, until = int(min(seconds, SLICE_SECONDS) * 1e9), 0.0
        while not (status := self._sent(self._hub, peer, number, at_once)):
            until = ensure_time(until, seconds, "was taken")
        _ensure_open(status)

    def returned(self, at: int, of: int = 0) -> None:
        """Let go of the message ``at`` an offset."""
        self._return(self._hub, at)

    def close(self) -> None:
        """End all waits; sent messages still go out, within a second."""
        self._files = ()
        if os.getpid() == self._own_process:
            self._close(self._hub)

    def release(self) -> None:
        """Release as ``Transport.release`` does: the hub goes when nobody refers to a message any more."""
        self._send = self._sent = self._await = self._close = _closed
        self._memory = memoryview(b"")

    def forked(self) -> None:
        """Close the connections in a child process, where they would hide from peers that this one has ended."""
        for file in self._files:
            with suppress(OSError):
                os.close(file)
        self._files = ()


def _closed(*given: object) -> int:
    return CLOSED


_open: weakref.WeakSet[SocketTransport] = weakref.WeakSet()


def _let_go_in_child() -> None:
    for each in list(_open):
        each.forked()


os.register_at_fork(after_in_child=_let_go_in_child)


def _ensure_open(status: int) -> None:
    if status == CLOSED:
        raise RuntimeError("the peer has given up, or has ended")
    if status == DAMAGED:
        raise RuntimeError("the peer was given up: what came from it is no message, or one that memory has no room for")


def _end(delete: Function, hub: int, process: int) -> None:
    """Delete a ``hub`` in the ``process`` that has made it, before the memory that it reads into goes."""
    if os.getpid() == process:
        delete(hub)
