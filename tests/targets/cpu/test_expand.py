"""Expansion of segments to tensors, against numpy."""

from itertools import product

import numpy as np
import pytest

SHAPES = [(0, 1, 2), (1, 1, 1), (1, 3, 4), (63, 1, 2), (200, 3, 7), (130, 64, 4), (40, 1000, 3), (999, 1, 3), (5, 2, 9)]


def test_a_tensor_survives_the_round_trip(kernels, dtype, at):
    rng = np.random.default_rng(6)
    for (units, width, parts), density in product(SHAPES, (0.0, 0.3, 1.0)):
        tensors = at.Tensors(kernels, kernels.geometry(units, width, parts, dense=True), dtype)
        ids = np.sort(rng.permutation(units)[: round(units * density)])
        values = dtype.narrow(rng.standard_normal((len(ids), width)).astype(np.float32))
        bitmap, placed = tensors.place_units(ids, values)
        dense = np.zeros((units, width), values.dtype)
        dense[ids] = values
        case = units, width, parts, density
        assert np.array_equal(tensors.expand_dense(bitmap, placed), dense), case
        found, rows = tensors.expand_units(bitmap, placed)
        assert np.array_equal(found, ids), case
        assert np.array_equal(rows, values), case


def test_a_sum_in_place_leaves_nothing_of_what_was_there(kernels, dtype, at):
    """Units that the sum lacks, as where they cancelled out, and zeros of either sign are cleared."""
    rng = np.random.default_rng(9)
    for (units, width, parts), density in product(SHAPES, (0.0, 0.1, 0.7)):
        tensors = at.Tensors(kernels, kernels.geometry(units, width, parts, dense=True), dtype)
        ids = np.flatnonzero(rng.random(units) < density)
        sums = dtype.narrow(rng.standard_normal((len(ids), width)).astype(np.float32))
        bitmap, placed = tensors.place_units(ids, sums)
        tensor = dtype.narrow(np.where(rng.random((units, width)) < 0.5, -0.0, 0.0).astype(np.float32))
        mine = rng.random(units) < 0.2
        tensor[mine] = dtype.narrow(rng.standard_normal((mine.sum(), width)).astype(np.float32))
        expected = np.zeros_like(tensor)
        expected[ids] = sums
        found = tensors.expand_dense(bitmap, placed, tensor)
        assert found.tobytes() == expected.tobytes(), (units, width, parts, density)


FILLED = [(0, 1), (1, 1), (64, 1), (65, 3), (300, 64), (130, 1000)]


def test_a_part_is_filled_up_with_zeros(kernels, dtype, at):
    rng = np.random.default_rng(7)
    for (slots, width), density in product(FILLED, (0.0, 0.3, 1.0)):
        tensors = at.Tensors(kernels, kernels.geometry(slots, width, 1), dtype)
        present = np.sort(rng.permutation(slots)[: round(slots * density)])
        values = dtype.narrow(rng.standard_normal((len(present), width)).astype(np.float32))
        bitmap, filled, out = at.bitmap_of(present, slots), at.bitmap_of(np.arange(slots), slots), tensors.values(slots)
        at_bitmaps = at.address(bitmap), at.address(filled)
        kernels.spread(dtype.name, *at_bitmaps, slots, width, at.address(values), at.address(out))
        expected = np.zeros((slots, width), values.dtype)
        expected[present] = values
        assert np.array_equal(out, expected), (slots, width, density)


@pytest.mark.parametrize("slots", [0, 1, 63, 64, 65, 1000])
def test_fill_bitmap_sets_exactly_the_slots(kernels, at, slots):
    bitmap = np.full(-(-slots // 64), 0xA5, np.uint64)
    kernels.fill_bitmap(at.address(bitmap), slots)
    assert np.array_equal(at.occupied(bitmap), np.arange(slots))


@pytest.mark.parametrize("offset", [0, 4], ids=["aligned to lines", "not aligned"])
def test_a_large_result_is_written_whole(permuting, at, offset):
    """Whole lines of 5 MB do not fit in a core's caches; one float further on they are no lines."""
    width, dtype = 64, at.DTYPES[0]
    tensors = at.Tensors(permuting, permuting.geometry(40_000, width, 3), dtype)
    ids = np.random.default_rng(4).permutation(40_000)[:20_000]
    values = np.arange(ids.size * width, dtype=np.float32).reshape(-1, width)
    bitmap, placed = tensors.place_units(ids, values)
    room = np.zeros(values.nbytes + 128, np.uint8)
    start = -at.address(room) % 64 + offset
    units, out = np.empty(ids.size, np.int64), room[start : start + values.nbytes]
    parts = tensors.part_values(bitmap, placed)
    where = (at.address(units), at.address(room) + start)
    assert permuting.expand_units("f32", tensors.geometry, at.address(bitmap), parts, *where) == ids.size
    assert np.array_equal(units, np.sort(ids))
    assert np.array_equal(out.view(np.float32).reshape(-1, width), values[np.argsort(ids)])
    assert not room[:start].any() and not room[start + values.nbytes :].any()
