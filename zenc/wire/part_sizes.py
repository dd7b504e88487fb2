"""Part sizes in slots: equal cuts between blocks, or under hierarchical hashing the counts that the hash h0 gives.

h0, the function that chooses parts, is as in ``templates/shared/zenc/hash.h``.
"""

from __future__ import annotations

import numpy as np

from zenc.scheme.model import PERMUTED_BLOCKS, HierarchicalHash, Mapping, Permutation
from zenc.wire.constants import BLOCKS_OF_PART, GOLDEN, LEAST_BLOCK
from zenc.wire.formats import slots_of
from zenc.wire.mix import ALL_BITS, Words, mix, mixed

MOST_HASHED = 1 << 22
"""Units that are hashed one by one to be counted."""
_CHUNK = 1 << 16


def block_of(mapping: Mapping, units: int, width: int, parts: int) -> int:
    """Units of ``width`` values that stay together under ``mapping``: as in ``templates/shared/zenc/permutation.h``."""
    if width != 1 or not isinstance(mapping, Permutation):
        return 1
    if mapping.block:
        return mapping.block
    least = BLOCKS_OF_PART * parts * (parts - 1).bit_length()
    return next((block for block in reversed(PERMUTED_BLOCKS) if units >= block * least), LEAST_BLOCK)


def part_sizes(mapping: Mapping, units: int, width: int, parts: int) -> list[int]:
    """The slots of each part of ``units`` x ``width`` values.

    Of more than 2^22 hashed units those of equal cuts: real parts differ from them by about sqrt(units / parts).
    """
    if not isinstance(mapping, HierarchicalHash) or units > MOST_HASHED:
        block = block_of(mapping, units, width, parts)
        return [slots_of(units, parts, part, block) for part in range(parts)]
    sizes = np.zeros(parts, np.int64)
    for first in range(0, units, _CHUNK):
        chunk = np.arange(first, min(first + _CHUNK, units), dtype=np.uint64)
        sizes += np.bincount(parts_of_units(mapping, chunk, parts).astype(np.int64), minlength=parts)
    return [int(size) for size in sizes]


def parts_of_units(mapping: HierarchicalHash, units: Words, parts: int) -> Words:
    """h0 of ``units``, in [0, parts), for up to 2^32 parts."""
    key = np.uint64(mixed((mixed(mapping.seed) + GOLDEN) & ALL_BITS))
    random = mix(key + (units + np.uint64(1)) * np.uint64(GOLDEN))
    half, cuts = np.uint64(32), np.uint64(parts)
    below: Words = (random & np.uint64(0xFFFFFFFF)) * cuts >> half
    found: Words = ((random >> half) * cuts + below) >> half
    return found
