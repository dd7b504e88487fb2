"""Pools of blocks of memory whose pages stay: room for messages, and for the results of calls.

Taking pages of the system and giving them back in every call costs more than writing to them. Pages of blocks unused
for a minute go back all the same: a process that sums ever new shapes has a pool for each size.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache, partial
from time import monotonic
from typing import TypeAlias

import torch

from zenc.errors import Diagnostic, TensorError

LINE = 64
"""The number of bytes that blocks are multiples of."""
LARGER_BLOCKS = 4
"""The number of block sizes that are tried for a message, from the smallest that it fits into on."""
NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
"""The flag MAP_NORESERVE, which Python names from 3.13 on: pages count as used when they are first written to."""
MOST_KEPT = 1 << 26
"""Bytes of the largest block of ``own_room``."""
IDLE_SECONDS = 60.0
"""Seconds from one search for unused blocks to the next: pages that fault in once a minute cost little."""
GiveBack: TypeAlias = Callable[[int, int], None]
"""A function of the beginning of memory and its bytes, in whole pages; their contents are lost."""


class _Loan(weakref.ref[memoryview]):
    """Bytes ``at`` an offset, until nobody refers to them; ``of`` is the number that their lender has of them."""

    __slots__ = ("at", "of")
    at: int
    of: int


class Lender(ABC):
    """A base of what lends parts of its ``memory``, and gets each back by ``returned`` when nobody refers to it.

    That may be on any thread. A fork has a copy of the memory, and returns nothing.
    """

    def __init__(self, memory: memoryview) -> None:
        self._memory, self._borrowed, self._own_process = memory, dict[int, _Loan](), os.getpid()

    def lend(self, at: int, size: int, of: int = 0) -> torch.Tensor:
        """Return the bytes [size] uint8 ``at`` an offset, 1 at least, of which the lender has the number ``of``."""
        view = self._memory[at : at + size]
        loan = _Loan(view, self._ended)
        loan.at, loan.of = at, of
        self._borrowed[id(loan)] = loan
        return torch.frombuffer(view, dtype=torch.uint8)

    def _ended(self, reference: weakref.ref[memoryview]) -> None:
        loan = self._borrowed.pop(id(reference))
        if os.getpid() == self._own_process:
            self.returned(loan.at, loan.of)

    @abstractmethod
    def returned(self, at: int, of: int) -> None:
        """Take back what was lent, on the thread that let go of it last."""


class _FreeBlocks(list[int]):
    """Places of free blocks of one size, of which the last is taken first.

    The first ``idle`` of them were not taken since the last search; ``bare`` of these have no pages.
    """

    __slots__ = ("bare", "idle")

    def __init__(self) -> None:
        self.bare = self.idle = 0

    def take(self) -> int:
        at = self.pop()
        self.idle = min(self.idle, len(self))
        self.bare = min(self.bare, self.idle)
        return at

    def give_back(self, size: int, give_back: GiveBack) -> None:
        """Give back the whole pages of idle blocks of ``size`` bytes; all free blocks are idle from now on."""
        for at in self[self.bare : self.idle]:
            begin, end = -(-at // mmap.PAGESIZE) * mmap.PAGESIZE, (at + size) // mmap.PAGESIZE * mmap.PAGESIZE
            if begin < end:
                give_back(begin, end - begin)
        self.bare, self.idle = self.idle, len(self)


class BlockPool(Lender):
    """Blocks of ``memory``, given out again when nobody refers to their contents.

    ``reclaim`` lets go of blocks whose readers are done; ``give_back`` returns the pages of unused blocks. Blocks may
    be let go of on any thread.
    """

    def __init__(
        self, memory: memoryview, reclaim: Callable[[], None] = lambda: None, give_back: GiveBack | None = None
    ) -> None:
        super().__init__(memory)
        self.size, self._reclaim, self._end = len(memory), reclaim, 0
        self._give_back, self._looked = give_back, monotonic()
        self._free: dict[int, _FreeBlocks] = {}
        self._giving = threading.Lock()

    def room(self, size: int) -> torch.Tensor:
        """Return a tensor [size] of bytes, uint8; raises TensorError (``out-of-memory``)."""
        with self._giving:
            if self._give_back is not None and monotonic() > self._looked + IDLE_SECONDS:
                self._give_idle_back(self._give_back)
            at, block = self._freed(size) or self._freed_now(size) or self._grown(size)
            return self.lend(at, size, block)

    def _freed(self, size: int) -> tuple[int, int] | None:
        block = block_bytes(size)
        for _ in range(LARGER_BLOCKS):
            if free := self._free.get(block):
                return free.take(), block
            block = block_bytes(block + 1)
        return None

    def _freed_now(self, size: int) -> tuple[int, int] | None:
        self._reclaim()
        return self._freed(size)

    def _grown(self, size: int) -> tuple[int, int]:
        at, block = self._end, block_bytes(size)
        if at + block > self.size:
            message = f"{self.size:,} bytes of memory, of which {at:,} were used, have no room for {size:,} more"
            raise TensorError(Diagnostic("out-of-memory", message))
        self._end = at + block
        return at, block

    def _give_idle_back(self, give_back: GiveBack) -> None:
        self._reclaim()
        for size, free in list(self._free.items()):
            free.give_back(size, give_back)
        self._looked = monotonic()

    def returned(self, at: int, of: int) -> None:
        """Take back the block ``at`` an offset, of ``of`` bytes."""
        free = self._free.get(of)
        if free is None:
            free = self._free.setdefault(of, _FreeBlocks())
        free.append(at)


def block_bytes(size: int) -> int:
    """Return the size of the smallest block for ``size`` bytes, at most an eighth larger from 512 on."""
    step = max(LINE, 1 << max(0, size.bit_length() - 4))
    return -(-max(1, size) // step) * step


def own_room(size: int) -> torch.Tensor:
    """Return a tensor [size] of bytes, uint8, in memory of this process alone, for messages and results of calls."""
    pool = _own_pool(os.getpid()) if 0 < size <= MOST_KEPT else None
    return torch.empty(size, dtype=torch.uint8, device="cpu") if pool is None else pool.room(size)


@cache
def _own_pool(process: int) -> BlockPool | None:
    """Return the pool of a ``process``, each fork with its own; None where memory can't be reserved before its use."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
        memory = mmap.mmap(-1, size, flags=kind)
        return BlockPool(memoryview(memory), give_back=partial(memory.madvise, mmap.MADV_DONTNEED))
    except (OSError, ValueError, AttributeError):
        return None
