"""Partitioning of units to parts and slots, in numpy: equal to the headers in ``templates``, for predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np

from zenc.plan.expressions import Ints
from zenc.scheme.model import Contiguous, HierarchicalHash, Holders, Mapping, Permutation
from zenc.wire.constants import DRAW_FIRST, DRAW_SECOND, GOLDEN, PERMUTATION_ROUNDS
from zenc.wire.mix import ALL_BITS, mixed
from zenc.wire.owners import owners_of
from zenc.wire.part_sizes import block_of, part_sizes, parts_of_units


@dataclass(frozen=True, slots=True, eq=False)
class UnitPartition:
    """``part`` and local ``slot`` of each unit, [units], and the ``sizes`` of the parts, [parts]."""

    part: Ints
    slot: Ints
    sizes: Ints


def cut(mapping: Mapping, units: int, width: int, parts: int) -> UnitPartition:
    """The cut of a tensor of ``units`` x ``width`` values, under all mappings but Holders: see ``owned``."""
    assert not isinstance(mapping, Holders)
    if isinstance(mapping, HierarchicalHash):
        return _grouped(parts_of_units(mapping, np.arange(units, dtype=np.uint64), parts).astype(np.int64), parts)
    slots = slots_of_units(mapping, units, np.arange(units), block_of(mapping, units, width, parts))
    sizes = np.array(part_sizes(mapping, units, width, parts))
    return UnitPartition(*np.divmod(slots, max(1, sizes[0])), sizes)


def whole(units: int) -> UnitPartition:
    """One part, of all units."""
    return UnitPartition(np.zeros(units, np.int64), np.arange(units), np.array([units]))


def owned(held: Sequence[Ints], units: int, parts: int) -> UnitPartition:
    """The cut under Holders, where rank r holds the units ``held[r]``: units that nobody holds have no slot."""
    ids, owners = owners_of(held)
    found = _grouped(owners, parts)
    part, slot = np.zeros((2, units), np.int64)
    part[ids], slot[ids] = found.part, found.slot
    return UnitPartition(part, slot, found.sizes)


def _grouped(part: Ints, parts: int) -> UnitPartition:
    """What is in a part, ascending, are its slots."""
    sizes = np.bincount(part, minlength=parts)
    order = np.argsort(part, kind="stable")
    slot = np.empty_like(part)
    slot[order] = np.arange(len(part)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return UnitPartition(part, slot, sizes)


def slots_of_units(mapping: Contiguous | Permutation, units: int, ids: Ints, block: int) -> Ints:
    """The slots of unit ``ids`` [n] in a tensor of ``units``, of which ``block`` keep together.

    See docs/adr/0003-permutation.md and 0036-blocks.md.
    """
    slots = np.array(ids)
    if isinstance(mapping, Permutation):
        whole = np.flatnonzero(slots < units // block * block)
        numbers, places = np.divmod(slots[whole], block)
        slots[whole] = _permuted(mapping.seed, units // block, numbers) * block + places
    return slots


def _permuted(seed: int, count: int, numbers: Ints) -> Ints:
    columns = isqrt(count - 1) + 1 if count else 1
    rows, keys = -(-count // columns), _keys(seed, count)
    moved = _forward(numbers, columns, rows, keys)
    while (beyond := np.flatnonzero(moved >= count)).size:
        moved[beyond] = _forward(moved[beyond], columns, rows, keys)
    return moved


def _forward(cells: Ints, columns: int, rows: int, keys: list[int]) -> Ints:
    row, column = np.divmod(cells, columns)
    for first, second in zip(keys[::2], keys[1::2], strict=True):
        column = (column + _draw(row, first, columns)) % columns
        row = (row + _draw(column, second, rows)) % rows
    return row * columns + column


def _draw(numbers: Ints, key: int, below: int) -> Ints:
    """Pseudo-random numbers in [0, below), from 32 bits of each number."""
    hashed = (numbers.astype(np.uint32) ^ np.uint32(key)) * np.uint32(DRAW_FIRST)
    hashed = (hashed ^ (hashed >> np.uint32(15))) * np.uint32(DRAW_SECOND)
    return np.asarray(hashed.astype(np.uint64) * np.uint64(below) >> np.uint64(32)).astype(np.int64)


def _keys(seed: int, count: int) -> list[int]:
    state, keys = mixed(seed) ^ mixed(count + GOLDEN & ALL_BITS), []
    for _ in range(2 * PERMUTATION_ROUNDS):
        state = state + GOLDEN & ALL_BITS
        keys.append(mixed(state) >> 32)
    return keys
