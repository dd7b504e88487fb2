"""Partitioning of units to parts and slots, in numpy: equal to the headers in ``templates``, for predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np

from zenc.plan.expressions import Ints
from zenc.scheme.model import Contiguous, HierarchicalHash, Holders, Mapping, Permutation
from zenc.wire.constants import DRAW_FIRST, DRAW_SECOND, GOLDEN, PERMUTATION_ROUNDS
from zenc.wire.formats import slots_of
from zenc.wire.mix import ALL_BITS, mixed
from zenc.wire.owners import owners_of
from zenc.wire.part_sizes import parts_of_units


@dataclass(frozen=True, slots=True, eq=False)
class UnitPartition:
    """``part`` and local ``slot`` of each unit, [units], and the ``sizes`` of the parts, [parts]."""

    part: Ints
    slot: Ints
    sizes: Ints


def cut(mapping: Mapping, units: int, parts: int) -> UnitPartition:
    """The cut of a tensor of ``units``, under all mappings but Holders: see ``owned``."""
    assert not isinstance(mapping, Holders)
    if isinstance(mapping, HierarchicalHash):
        return _grouped(parts_of_units(mapping, np.arange(units, dtype=np.uint64), parts).astype(np.int64), parts)
    slots = slots_of_units(mapping, units, np.arange(units))
    sizes = np.array([slots_of(units, parts, part) for part in range(parts)])
    return UnitPartition(*np.divmod(slots, max(1, slots_of(units, parts, 0))), sizes)


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


def slots_of_units(mapping: Contiguous | Permutation, units: int, ids: Ints) -> Ints:
    """The slots of unit ``ids`` [n] in a tensor of ``units``; see docs/adr/0003-permutation.md."""
    return _permuted(mapping.seed, units, ids) if isinstance(mapping, Permutation) else ids


def _permuted(seed: int, units: int, ids: Ints) -> Ints:
    columns = isqrt(units - 1) + 1 if units else 1
    rows, keys = -(-units // columns), _keys(seed, units)
    slots = _forward(ids, columns, rows, keys)
    while (beyond := np.flatnonzero(slots >= units)).size:
        slots[beyond] = _forward(slots[beyond], columns, rows, keys)
    return slots


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


def _keys(seed: int, units: int) -> list[int]:
    state, keys = mixed(seed) ^ mixed(units + GOLDEN & ALL_BITS), []
    for _ in range(2 * PERMUTATION_ROUNDS):
        state = state + GOLDEN & ALL_BITS
        keys.append(mixed(state) >> 32)
    return keys
