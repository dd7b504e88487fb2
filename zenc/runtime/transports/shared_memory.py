"""Memory that the ranks of one host share: a file in memory for each rank, which the others of its host map.

    file  = token  ring of each sender, by its rank  arena: block*
    ring  = slots of messages from one sender to the file's owner      # templates/cpu/shared_memory.cpp
    block = room for one message, which its sender writes, and whoever receives it reads in place

A file has no name: others open it by its owner's ``/proc``, and the memory is gone when the last of them has ended,
however that was. Only the owner's user may open it, nobody can make it shorter, and peers can't write to its arena.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import secrets
import struct
import weakref
from functools import cache

from zenc.codegen.build.build_once import DEADLINE_SECONDS
from zenc.codegen.build.host import build_file
from zenc.runtime.cpu.bindings import EntryPoints, entry_points

PAGE = 1 << 16
"""The number of bytes that the page size of any processor divides."""
MOST_ARENA = 1 << 40
"""Most bytes of an arena; its pages take memory when they are first written to, and not before."""
_INVITATION = struct.Struct("<16s16sQII")
INVITATION_BYTES = _INVITATION.size


@cache
def ring_functions(deadline_s: float = DEADLINE_SECONDS) -> EntryPoints:
    """Return the C entry points of ``templates/cpu/shared_memory.cpp``, compiled unless the cache has them.

    Raises BuildError and CacheError.
    """
    return entry_points(build_file("cpu/shared_memory.cpp", deadline_s=deadline_s, scheme="shared memory"))


class MappedBytes:
    """Mapped memory: ``size`` bytes of ``file`` from ``offset`` on, at ``address``, until no view of it is left."""

    __slots__ = ("address", "memory")

    def __init__(self, functions: EntryPoints, file: int, offset: int, size: int, *, writable: bool) -> None:
        self.address: int = functions["map"](file, offset, size, writable)
        if self.address < 0:
            raise OSError(-self.address, os.strerror(-self.address))
        whole = (ctypes.c_uint8 * size).from_address(self.address)
        weakref.finalize(whole, functions["unmap"], self.address, size).atexit = False
        self.memory = memoryview(whole).cast("B")


class OwnFile:
    """The file of this rank, for ``ranks`` senders, with an arena of as many bytes as this machine has.

    Raises OSError, and AttributeError where this Python lacks a function for it.
    """

    def __init__(self, functions: EntryPoints, ranks: int) -> None:
        self._functions, self._ranks, self._token = functions, ranks, secrets.token_bytes(16)
        arena_at = PAGE + ranks * ring_room(functions)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._size = arena_at + min(MOST_ARENA, -(-memory // PAGE) * PAGE)
        boot = host()
        self._file = os.memfd_create("zenc", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.fchmod(self._file, 0o600)
            os.ftruncate(self._file, self._size)
            os.pwrite(self._file, self._token, 0)
            fcntl.fcntl(self._file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            self.rings = MappedBytes(functions, self._file, PAGE, arena_at - PAGE, writable=True)
            self.arena = MappedBytes(functions, self._file, arena_at, self._size - arena_at, writable=True)
        except BaseException:
            self.close()
            raise
        self._invitation = _INVITATION.pack(boot, self._token, self._size, os.getpid(), self._file)

    def give_back(self, at: int, size: int) -> None:
        """Give back the pages of the arena from ``at`` on; their contents are lost."""
        self._functions["give_back"](self.arena.address + at, size)

    def invitation(self) -> bytes:
        """Return the bytes by which a peer opens the file, if it is on this host: [INVITATION_BYTES]."""
        return self._invitation

    def close(self) -> None:
        """Close the file, once the peers have opened it; its mappings stay."""
        os.close(self._file)


class PeerFile:
    """The file of a peer, by its ``invitation``: the ring of ``sender`` in it, and its arena.

    Raises OSError where it can't be opened, or is another one than that of the invitation; AttributeError as OwnFile.
    """

    def __init__(self, functions: EntryPoints, invitation: bytes, ranks: int, sender: int) -> None:
        _, token, size, process, number = _INVITATION.unpack(invitation)
        room = ring_room(functions)
        arena_at = PAGE + ranks * room
        self.process = os.pidfd_open(process)
        try:
            file = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
            try:
                sealed = fcntl.fcntl(file, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
                if os.pread(file, len(token), 0) != token or os.fstat(file).st_size != size or not sealed:
                    raise OSError(f"process {process} has another file in place of the one that it shares")
                self.ring = MappedBytes(functions, file, PAGE + sender * room, room, writable=True)
                self.arena = MappedBytes(functions, file, arena_at, size - arena_at, writable=False)
            finally:
                os.close(file)
        except BaseException:
            os.close(self.process)
            raise
        weakref.finalize(self, os.close, self.process).atexit = False


def ring_room(functions: EntryPoints) -> int:
    """Return the bytes that a ring has to itself in a file."""
    ring: int = functions["ring_bytes"]()
    return -(-ring // PAGE) * PAGE


def host_of(invitation: bytes) -> bytes:
    """Return the ``host()`` of the invitation's maker; zeros without an invitation."""
    return invitation[:16]


@cache
def host() -> bytes:
    """Return the name of this boot of this machine and of the network that this process is in: 16 bytes.

    Processes in another network namespace are on another host, as they are to all else that they say to each other.
    """
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:
        boot = file.read()
    return hashlib.sha256(boot + os.readlink("/proc/self/ns/net").encode()).digest()[:16]
