"""Pools of blocks: rooms do not overlap and are reused, and pages of unused ones are returned."""

from __future__ import annotations

import mmap
from functools import partial
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from zenc.runtime.transports.block_pool import IDLE_SECONDS, BlockPool

SIZES = st.lists(st.integers(1, 40_000), max_size=20)


def look(pool: BlockPool) -> None:
    """Ask for a room after a minute."""
    pool._looked -= 2 * IDLE_SECONDS
    pool.room(1)


@given(SIZES, SIZES)
def test_only_pages_of_free_blocks_go_back(kept: list[int], gone: list[int]) -> None:
    returned: list[tuple[int, int]] = []
    pool = BlockPool(memoryview(bytearray(1 << 21)), give_back=lambda at, size: returned.append((at, at + size)))
    rooms = [pool.room(size).fill_(number) for number, size in enumerate(kept)]
    free = [pool.room(size) for size in gone]
    places = sorted((held.at, held.at + held.size) for held in pool._in_use.values())
    assert all(end <= begin for (_, end), (begin, _) in pairwise(places))
    del free
    look(pool)
    assert returned == [], "they have been taken a moment ago"
    look(pool)
    in_use = [(held.at, held.at + held.size) for held in pool._in_use.values()]
    assert all(end <= begin or until <= at for at, end in returned for begin, until in in_use)
    assert all(at % mmap.PAGESIZE == end % mmap.PAGESIZE == 0 for at, end in returned)
    assert len(returned) >= sum(size >= 2 * mmap.PAGESIZE for size in gone), "a page lies in each of these whole"
    assert all(bool(room.eq(number).all()) for number, room in enumerate(rooms))


def test_blocks_keep_their_pages_as_long_as_they_are_taken() -> None:
    memory = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pool = BlockPool(memoryview(memory), give_back=partial(memory.madvise, mmap.MADV_DONTNEED))
    size = 100_000
    for _ in range(3):
        pool.room(size).fill_(7)
        look(pool)
        assert bytes(memory).count(7) == size
    look(pool)
    assert bytes(memory).count(7) < 2 * mmap.PAGESIZE, "all but parts of pages"
    pool.room(size).fill_(8)
    assert bytes(memory).count(8) == size, "the block is taken again"
