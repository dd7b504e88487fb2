"""Partitioning of units to parts and slots, in numpy: equal to the headers in ``templates``, for predictions.

Parts have equal sizes but for blocks that stay together; those by encoded sizes in the first call. Under hierarchical
hashing they have those that h0 gives, the function that chooses parts (``templates/shared/zenc/hash.h``); by holders
the units of their owners (``templates/cpu/zenc_cpu/owners/owners.h``). A unit that c of n ranks hold takes c - 1
messages to its owner and n - 1 from it. The units of one holder are its own. Each other one goes to the holder under
which the squares of what all send and receive grow least: in ascending order, up to CHOSEN_TOGETHER at a time by the
same loads. So that those chosen together are spread among their holders, each of these is taken to own some more units
already, a number drawn for it and the unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np

from zenc.plan.expressions import Ints, Mask
from zenc.scheme.model import Contiguous, Encoded, HierarchicalHash, Holders, Mapping, Permutation
from zenc.wire.constants import (
    CHOSEN_TOGETHER,
    DRAW_FIRST,
    DRAW_SECOND,
    FEW_TOGETHER,
    GOLDEN,
    MESSAGE_WEIGHT,
    PERMUTATION_ROUNDS,
    RECEIVED_WEIGHT,
)
from zenc.wire.formats import block_of, slots_of
from zenc.wire.mix import ALL_BITS, Words, mix, mixed

MOST_HASHED = 1 << 22
"""Units that are hashed one by one to be counted."""
_CHUNK = 1 << 16
_AT_ONCE = 1 << 20


def part_sizes(mapping: Mapping, units: int, width: int, parts: int) -> list[int]:
    """Return the slots of each part of ``units`` x ``width`` values.

    For more than 2^22 hashed units, they are those of equal cuts: real parts differ from them by about sqrt(units /
    parts).
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
    """Return h0 of ``units`` [n], in [0, parts), for up to 2^32 parts."""
    key = np.uint64(mixed((mixed(mapping.seed) + GOLDEN) & ALL_BITS))
    random = mix(key + (units + np.uint64(1)) * np.uint64(GOLDEN))
    return _below(random, parts)


def _below(random: Words, most: int) -> Words:
    """Return numbers in [0, ``most``), for up to 2^32, from 64 random bits each."""
    half, cuts = np.uint64(32), np.uint64(most)
    below: Words = (random & np.uint64(0xFFFFFFFF)) * cuts >> half
    found: Words = ((random >> half) * cuts + below) >> half
    return found


def owners_of(held: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Return the units that some rank holds, ascending, and the owner of each; ``held[rank]`` are ascending."""
    ranks = len(held)
    ids = np.concatenate(held) if ranks else np.zeros(0, np.int64)
    holder = np.repeat(np.arange(ranks), [len(mine) for mine in held])
    order = np.argsort(ids, kind="stable")  # the holders of a unit stay in ascending order
    units, starts, counts = np.unique(ids[order], return_index=True, return_counts=True)
    holder = holder[order]
    owners = holder[starts]
    owned = np.bincount(owners[counts == 1], minlength=ranks)  # what they alone hold
    sent, received = np.array([len(mine) for mine in held], np.int64) + owned * (ranks - 2), -owned
    several, first = np.flatnonzero(counts > 1), 0
    while first < len(several):
        together = _chosen_together(len(several) - first, ranks)
        numbers, at = np.arange(first, first + together)[:, None], several[first : first + together]
        first, more = first + together, counts[at] - 2
        costs = (
            sent * (ranks - 2) * MESSAGE_WEIGHT + more[:, None] * received * RECEIVED_WEIGHT * MESSAGE_WEIGHT + owned
        )
        each = (ranks - 2) ** 2 * MESSAGE_WEIGHT + 1 + more**2 * RECEIVED_WEIGHT * MESSAGE_WEIGHT
        costs += each[:, None] * _draw(numbers, np.arange(ranks) * (GOLDEN & 0xFFFFFFFF), together)
        costs[~_held(holder, starts[at], counts[at], ranks)] = np.iinfo(np.int64).max
        chosen = owners[at] = costs.argmin(axis=1)
        sent += np.bincount(chosen, minlength=ranks) * (ranks - 2)
        np.add.at(received, chosen, more)
        owned += np.bincount(chosen, minlength=ranks)
    return units, owners


def _chosen_together(left: int, ranks: int) -> int:
    many, few = -(-left // (16 * ranks)), -(-left // (4 * ranks))
    return min(CHOSEN_TOGETHER, many) if many > FEW_TOGETHER else min(FEW_TOGETHER, few)


def _held(holder: Ints, starts: Ints, counts: Ints, ranks: int) -> Mask:
    """Return whether ranks hold units, [units, ranks]; unit i has ``counts[i]`` holders from ``starts[i]`` on."""
    held = np.zeros((len(starts), ranks), bool)
    for row, start, count in zip(held, starts.tolist(), counts.tolist(), strict=True):
        row[holder[start : start + count]] = True
    return held


@dataclass(frozen=True, slots=True, eq=False)
class UnitPartition:
    """A cut: ``part`` and local ``slot`` of each unit, [units], and the ``sizes`` of the parts, [parts]."""

    part: Ints
    slot: Ints
    sizes: Ints


def cut(mapping: Mapping, units: int, width: int, parts: int) -> UnitPartition:
    """Return the cut of a tensor of ``units`` x ``width`` values, under all mappings but Holders: see ``owned``."""
    assert not isinstance(mapping, Holders)
    if isinstance(mapping, HierarchicalHash):
        return _grouped(parts_of_units(mapping, np.arange(units, dtype=np.uint64), parts).astype(np.int64), parts)
    slots = slots_of_units(mapping, units, np.arange(units), block_of(mapping, units, width, parts))
    sizes = np.array(part_sizes(mapping, units, width, parts))
    return UnitPartition(*np.divmod(slots, max(1, sizes[0])), sizes)


def whole(units: int) -> UnitPartition:
    """Return the cut into one part, of all units."""
    return UnitPartition(np.zeros(units, np.int64), np.arange(units), np.array([units]))


def dealt(units: int, parts: int) -> UnitPartition:
    """Return the parts of a directory: each block of ``parts`` consecutive units has one in each part, drawn for it.

    See templates/cpu/zenc_cpu/owners/directory.h.
    """
    block, place = np.divmod(np.arange(units), parts)
    shift = _below(mix(block.astype(np.uint64)), parts).astype(np.int64)
    return UnitPartition((place + shift) % parts, block, np.full(parts, -(-units // parts)))


def named_owners(held: Sequence[Ints], units: int) -> tuple[Ints, Ints]:
    """Return the owners as a directory names them: units [n] of all ``units``, ascending, and owners [n].

    Each part's owners depend on the units held in it alone, with ranks counted from the one whose part it is.
    """
    ranks = len(held)
    part, found = dealt(units, ranks).part, [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for number in range(ranks):
        ids, owners = owners_of([mine[part[mine] == number] for mine in (*held[number:], *held[:number])])
        found.append((ids, (owners + number) % ranks))
    ids, owners = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.argsort(ids)
    return ids[order], owners[order]


def owned(held: Sequence[Ints], units: int, parts: int, by_directory: bool = False) -> UnitPartition:
    """Return the cut under Holders, where rank r holds the units ``held[r]``; units that no rank holds have no slot.

    The units of an owner are dealt in turns to those of the ``parts`` that are its own.
    """
    ids, owners = named_owners(held, units) if by_directory else owners_of(held)
    found = _grouped(dealt_in_turns(owners, len(held), parts // max(1, len(held))), parts)
    part, slot = np.zeros((2, units), np.int64)
    part[ids], slot[ids] = found.part, found.slot
    return UnitPartition(part, slot, found.sizes)


def dealt_in_turns(owners: Ints, ranks: int, each: int) -> Ints:
    """Return the part of each unit [units] where an owner has ``each`` of them: the next one with every unit."""
    part = owners * each
    for rank in range(ranks if each > 1 else 0):
        (mine,) = np.nonzero(owners == rank)
        part[mine] += np.arange(len(mine)) % each
    return part


def owned_across(by: UnitPartition, held: Sequence[Ints], members: int, by_directory: bool = False) -> UnitPartition:
    """Return the cut of each part of ``by`` among ``members`` members, by the holders of its slots among them.

    ``held[rank]`` are units; rank r is of member r / (ranks / members). Part q * members + p is what p owns of part q.
    """
    inner, slots = len(held) // members, [np.flatnonzero(by.part == part) for part in range(len(by.sizes))]
    part, slot, sizes = np.zeros_like(by.part), np.zeros_like(by.slot), list[Ints]()
    for number, units in enumerate(slots):
        of_members = [np.unique(np.concatenate(held[first : first + inner])) for first in range(0, len(held), inner)]
        own = [np.sort(by.slot[mine[by.part[mine] == number]]) for mine in of_members]
        found = owned(own, int(by.sizes[number]), members, by_directory)
        part[units] = number * members + found.part[by.slot[units]]
        slot[units] = found.slot[by.slot[units]]
        sizes.append(found.sizes)
    return UnitPartition(part, slot, np.concatenate(sizes))


def dealt_across(by: UnitPartition, members: int) -> UnitPartition:
    """Return the parts of a directory in each part of ``by``: part q * members + p is that of member p in part q."""
    part, slot, sizes = np.zeros_like(by.part), np.zeros_like(by.slot), list[Ints]()
    for number, size in enumerate(by.sizes.tolist()):
        found, units = dealt(size, members), np.flatnonzero(by.part == number)
        part[units] = number * members + found.part[by.slot[units]]
        slot[units] = found.slot[by.slot[units]]
        sizes.append(found.sizes)
    return UnitPartition(part, slot, np.concatenate(sizes))


def _grouped(part: Ints, parts: int) -> UnitPartition:
    """Return the cut by ``part``; the slots of a part are its units, ascending."""
    sizes = np.bincount(part, minlength=parts)
    order = np.argsort(part, kind="stable")
    slot = np.empty_like(part)
    slot[order] = np.arange(len(part)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return UnitPartition(part, slot, sizes)


def slots_of_units(mapping: Contiguous | Encoded | Permutation, units: int, ids: Ints, block: int) -> Ints:
    """Return the slots of unit ``ids`` [n] in a tensor of ``units``, in which ``block`` units keep together.

    See docs/adr/0003-permutation.md and 0036-blocks.md.
    """
    if not isinstance(mapping, Permutation):
        return ids
    slots = np.array(ids)
    for start in range(0, len(slots), _AT_ONCE):
        these = slots[start : start + _AT_ONCE]  # a part at a time: the intermediate arrays take ten times their memory
        whole = np.flatnonzero(these < units // block * block)
        numbers, places = np.divmod(these[whole], block)
        these[whole] = _permuted(mapping.seed, units // block, numbers) * block + places
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


def _draw(numbers: Ints, key: Ints | int, below: int) -> Ints:
    """Return pseudo-random numbers in [0, below), from 32 bits of each number and of the key."""
    hashed = (numbers.astype(np.uint32) ^ np.asarray(key).astype(np.uint32)) * np.uint32(DRAW_FIRST)
    hashed = (hashed ^ (hashed >> np.uint32(15))) * np.uint32(DRAW_SECOND)
    return np.asarray(hashed.astype(np.uint64) * np.uint64(below) >> np.uint64(32)).astype(np.int64)


def _keys(seed: int, count: int) -> list[int]:
    state, keys = mixed(seed) ^ mixed(count + GOLDEN & ALL_BITS), []
    for _ in range(2 * PERMUTATION_ROUNDS):
        state = state + GOLDEN & ALL_BITS
        keys.append(mixed(state) >> 32)
    return keys
