"""Pools of blocks of memory whose pages stay: room for messages, and for the results of calls.

To take pages of the system and to give them back in every call costs more than to write to them.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Callable
from functools import cache

import torch

from zenc.errors import Diagnostic, TensorError

LINE = 64
"""Bytes of which blocks are multiples."""
LARGER_BLOCKS = 4
"""Sizes of blocks that are tried for a message, from the smallest that it fits into on."""
NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
"""MAP_NORESERVE, which Python names from 3.13 on: pages count as used when they are first written to."""
MOST_KEPT = 1 << 26
"""Bytes of the largest block of ``own_room``, which is never given back to the system."""


class _InUse(weakref.ref[memoryview]):
    """A block of ``size`` bytes ``at`` an offset, until nobody refers to its bytes any more."""

    __slots__ = ("at", "size")
    at: int
    size: int


class BlockPool:
    """Blocks of ``memory``, given out again when nobody refers to what is in them.

    ``reclaim`` lets go of what may be let go of by now. Blocks may be let go of on any thread.
    """

    def __init__(self, memory: memoryview, reclaim: Callable[[], None] = lambda: None) -> None:
        self.size, self._memory, self._reclaim, self._end = len(memory), memory, reclaim, 0
        self._free: dict[int, list[int]] = {}
        self._in_use: dict[int, _InUse] = {}
        self._giving = threading.Lock()

    def room(self, size: int) -> torch.Tensor:
        """A tensor [size] of bytes, uint8; raises TensorError (``out-of-memory``)."""
        with self._giving:
            at, block = self._freed(size) or self._freed_now(size) or self._grown(size)
            view = self._memory[at : at + size]
            held = _InUse(view, self._let_go)
            held.at, held.size = at, block
            self._in_use[id(held)] = held
        return torch.frombuffer(view, dtype=torch.uint8)

    def _freed(self, size: int) -> tuple[int, int] | None:
        """Where a free block for ``size`` bytes begins, and its own size."""
        block = block_bytes(size)
        for _ in range(LARGER_BLOCKS):
            if free := self._free.get(block):
                return free.pop(), block
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

    def _let_go(self, held: weakref.ref[memoryview]) -> None:
        gone = self._in_use.pop(id(held))
        self._free.setdefault(gone.size, []).append(gone.at)


def block_bytes(size: int) -> int:
    """The size of the smallest block for ``size`` bytes, at most an eighth larger from 512 on."""
    step = max(LINE, 1 << max(0, size.bit_length() - 4))
    return -(-max(1, size) // step) * step


def own_room(size: int) -> torch.Tensor:
    """A tensor [size] of bytes, uint8, in memory of this process alone: for messages, and for the results of calls."""
    pool = _own_pool(os.getpid()) if 0 < size <= MOST_KEPT else None
    return torch.empty(size, dtype=torch.uint8) if pool is None else pool.room(size)


@cache
def _own_pool(process: int) -> BlockPool | None:
    """The pool of a ``process``, a fork of which has its own; None where the system gives no memory before its use."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
        return BlockPool(memoryview(mmap.mmap(-1, size, flags=kind)))
    except (OSError, ValueError, AttributeError):
        return None
