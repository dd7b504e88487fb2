"""Units that go through the hash memory are marked as on the CPU, whatever its size and the order of threads."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.emulator.device import Device
from tests.support.packing import Packer
from tests.support.pieces import Piece, ranks, ranks_of, rubbish, table, to_rank

SOURCE = Path(__file__).with_name("collect.cu")
FUNCTIONS = (1, 2, 3, 16)


@dataclass
class Collected:
    """What the kernels of a call have written; ``late`` is the bitmap before the units of the memory are marked."""

    memory: np.ndarray
    late: np.ndarray
    bitmap: np.ndarray
    slots: np.ndarray
    status: int


@pytest.fixture(scope="module")
def collecting(opened) -> Device:
    return opened({"collect.cu": SOURCE.read_text("utf-8")})


def collect(device, tensors, ids, k, parallel, serial, blocks=2, seed=None) -> Collected:
    """``ids`` through a memory with rows of ``parallel`` and ``serial`` cells."""
    g, tables = tensors.geometry, tensors.geometry.tables.keep
    cells = g.parts * (parallel + serial)
    memory = np.zeros(g.parts + -(-cells // 2), np.uint64)
    marked = Piece(64 * g.words, np.zeros(g.words, np.uint64), rubbish(ranks_of(64 * g.words)))
    bitmap, slots = marked.bitmap, np.full(len(ids), -1, np.int64)
    status, shape = np.zeros(1, np.uint64), [memory, parallel, serial, table([marked])]
    inputs = [g.units, g.parts, tables, ids, len(ids), *shape, slots, status]
    device.launch(f"collect_units_{k}", (blocks, 1), inputs, seed=seed)
    late, rows = bitmap.copy(), max(g.parts - 1, 1)
    arguments = [g.units, g.parts, tables, *shape, to_rank(marked.slots)]
    device.launch(f"mark_collected_{k}", (blocks, rows), arguments, seed=seed)
    assert np.array_equal(marked.ranks, ranks(bitmap))
    return Collected(memory, late, bitmap, slots, int(status[0]))


def stored(found: Collected, parts: int, parallel: int, serial: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The units of each part's row: (those of the parallel memory, those of the serial one)."""
    cells = found.memory[parts:].view(np.uint32)[: parts * (parallel + serial)].astype(np.int64)
    rows = cells.reshape(parts, parallel + serial)
    return [(row[:parallel][row[:parallel] != 0] - 1, row[parallel:][row[parallel:] != 0] - 1) for row in rows]


def check_memory(tensors, at, found: Collected, ids, parallel, serial) -> None:
    """Every unit is in the row of its part, at most once in its parallel memory, or was marked at once."""
    g, everything = tensors.geometry, []
    part_of = tensors.slots(np.arange(g.units)) // max(g.part_slots, 1)
    for part, (first, second) in enumerate(stored(found, g.parts, parallel, serial)):
        assert (part_of[first] == part).all() and (part_of[second] == part).all()
        assert len(np.unique(first)) == len(first)
        assert not np.isin(first, second).any()
        assert len(second) == min(int(found.memory[part]), serial)
        everything += [first, second]
    late = at.occupied(found.late)
    numbers = tensors.slots(np.arange(g.units))
    bits = numbers // max(g.part_slots, 1) * (64 * g.part_words) + numbers % max(g.part_slots, 1)
    units = np.unique(np.concatenate([*everything, np.flatnonzero(np.isin(bits, late))]))
    assert np.array_equal(units, np.unique(ids))


def share(of_each: float, n: int, parts: int) -> int:
    return -(-ceil(of_each * n) // parts)


@settings(max_examples=80, deadline=None)
@given(
    k=st.sampled_from(FUNCTIONS),
    units=st.integers(1, 400),
    parts=st.integers(1, 9),
    density=st.floats(0, 1),
    repeats=st.integers(1, 3),
    r1=st.sampled_from([0.0, 0.01, 0.5, 1.0, 2.0, 16.0]),
    r2=st.sampled_from([0.0, 0.01, 0.2, 3.0]),
    blocks=st.integers(1, 3),
    seed=st.integers(1, 1 << 30),
)
def test_what_is_collected_is_marked(collecting, hashing, at, k, units, parts, density, repeats, r1, r2, blocks, seed):
    """In an order of threads of its own every time; some units come several times."""
    rng = np.random.default_rng(seed)
    tensors = at.Tensors(hashing, hashing.geometry(units, 1, parts), at.DTYPES[0])
    ids = rng.permutation(np.repeat(rng.permutation(units)[: round(units * density)], repeats))
    parallel, serial = share(r1, len(ids), parts), share(r2, len(ids), parts)
    found = collect(collecting, tensors, ids, k, parallel, serial, blocks, seed)
    bitmap, slots = tensors.mark_slots(ids)
    assert found.status == 0
    assert np.array_equal(found.slots, slots) and np.array_equal(found.bitmap, bitmap)
    check_memory(tensors, at, found, ids, parallel, serial)


def test_orders_of_threads_change_the_memory_and_no_result(collecting, hashing, at):
    """A load of 2 units a cell: most collide, and who comes first decides where they end."""
    tensors, ids = at.Tensors(hashing, hashing.geometry(1500, 1, 5), at.DTYPES[0]), np.arange(1500)
    parallel, serial = share(0.5, 1500, 5), share(0.1, 1500, 5)
    bitmap, slots = tensors.mark_slots(ids)
    memories = set()
    for seed in range(1, 6):
        found = collect(collecting, tensors, ids, 3, parallel, serial, blocks=3, seed=seed)
        assert np.array_equal(found.slots, slots) and np.array_equal(found.bitmap, bitmap)
        assert found.late.any(), "nothing was marked at once"
        memories.add(found.memory.tobytes())
    if isinstance(collecting, Device):  # a GPU may well take one order five times
        assert len(memories) > 1


def test_the_parallel_memory_takes_what_theory_says(collecting, hashing, at):
    """With one function, 1 - exp(-load) of the cells are filled in any order; here to five standard deviations."""
    tensors, ids = at.Tensors(hashing, hashing.geometry(8000, 1, 2), at.DTYPES[0]), np.arange(8000)
    parallel, serial = share(2.0, 8000, 2), share(0.5, 8000, 2)
    found = collect(collecting, tensors, ids, 1, parallel, serial)
    filled = sum(len(first) for first, _ in stored(found, 2, parallel, serial))
    cells = 2 * parallel
    expected = cells * (1 - np.exp(-0.5))
    assert filled == pytest.approx(expected, abs=5 * expected**0.5)
    assert not found.late.any()


@pytest.mark.parametrize("bad", [-1, 10, 1 << 62, -(1 << 63)])
def test_the_first_unit_out_of_range_is_named(collecting, hashing, at, bad):
    tensors = at.Tensors(hashing, hashing.geometry(10, 1, 2), at.DTYPES[0])
    found = collect(collecting, tensors, np.array([3, 9, bad, 0, bad]), 3, 5, 1)
    good = tensors.slots(np.array([3, 9, 0]))
    assert found.status == (1 << 64) - 3 and found.slots.tolist() == [good[0], good[1], 0, good[2], 0]


@pytest.mark.parametrize(("units", "parts"), [(1, 1), (63, 9), (700, 3), (700, 1)])
def test_units_and_slots_by_tables_are_those_of_the_cpu(permuter_of, hashing, at, units, parts):
    tensors = at.Tensors(hashing, hashing.geometry(units, 1, parts), at.DTYPES[0])
    packer, ids = Packer(permuter_of("hierarchical_hash"), tensors), np.random.default_rng(8).permutation(units)
    slots, back = np.empty_like(ids), np.empty_like(ids)
    packer.launch("slots_of_units", [*packer.cut, ids, units, slots])
    packer.launch("units_of_slots", [*packer.cut, slots, units, back])
    assert np.array_equal(slots, tensors.slots(ids)) and np.array_equal(back, ids)
