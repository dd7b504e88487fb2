"""Mark, rank and place against sorting by slot in numpy."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from zenc.errors import InternalError, TensorError

SHAPES = [
    (1, 1, 1),
    (1, 3, 4),
    (2, 64, 3),
    (63, 1, 2),
    (200, 3, 7),
    (130, 64, 4),
    (40, 1000, 3),
    (999, 1, 1),
    (5, 2, 9),
]


def random_values(dtype, rows, width, rng):
    return dtype.narrow(rng.standard_normal((rows, width)).astype(np.float32))


def expected_marks(tensors, units):
    """Return the bitmap of all parts, from the slots that the mapping gives."""
    geometry = tensors.geometry
    slots = tensors.slots(np.unique(units))
    bits = np.zeros((geometry.parts, geometry.part_words * 64), np.uint8)
    if len(slots):
        bits[slots // geometry.part_slots, slots % geometry.part_slots] = 1
    return np.packbits(bits.reshape(-1), bitorder="little").view(np.uint64)


def test_distinct_units_are_copied_in_slot_order(kernels, dtype, at):
    rng = np.random.default_rng(1)
    for (units, width, parts), density in product(SHAPES, (0.0, 0.1, 1.0)):
        tensors = at.Tensors(kernels, kernels.geometry(units, width, parts, dense=True), dtype)
        ids = rng.permutation(units)[: round(units * density)]
        values = random_values(dtype, len(ids), width, rng)
        bitmap, out = tensors.place_units(ids, values)
        case = units, width, parts, density
        assert np.array_equal(bitmap, expected_marks(tensors, ids)), case
        assert np.array_equal(out.view(np.uint8), values[np.argsort(tensors.slots(ids))].view(np.uint8)), case


def summed_in_order(dtype, ids, values, divisor):
    """Return the rows of each unit of ``ids``, ascending, divided and added one after the other."""
    wide = np.float64 if dtype.name == "f64" else np.float32
    rows = dtype.widen(values).astype(wide) / wide(divisor)
    totals = {}
    for unit, row in zip(ids.tolist(), rows, strict=True):
        totals[unit] = totals[unit] + row if unit in totals else row
    return np.stack([dtype.narrow(totals[unit]) for unit in sorted(totals)])


def test_duplicates_are_summed_in_input_order(kernels, dtype, at):
    rng = np.random.default_rng(2)
    for (units, width, parts), divisor in product(SHAPES, (1, 3)):
        tensors = at.Tensors(kernels, kernels.geometry(units, width, parts, dense=True), dtype)
        ids = rng.integers(0, units, 3 * units + 1)
        values = random_values(dtype, len(ids), width, rng)
        bitmap, out = tensors.place_units(ids, values, divisor)
        expected = summed_in_order(dtype, ids, values, divisor)[np.argsort(tensors.slots(np.unique(ids)))]
        assert np.array_equal(bitmap, expected_marks(tensors, ids)), (units, width, parts, divisor)
        assert np.array_equal(out, expected), (units, width, parts, divisor)


def test_mean_of_distinct_units_is_divided_once(kernels, dtype, at):
    tensors = at.Tensors(kernels, kernels.geometry(10, 3, 2), dtype)
    values = random_values(dtype, 10, 3, np.random.default_rng(3))
    _, out = tensors.place_units(np.arange(10), values, 7)
    wide = np.float64 if dtype.name == "f64" else np.float32
    expected = dtype.narrow(dtype.widen(values).astype(wide) / wide(7))
    assert np.array_equal(out, expected[np.argsort(tensors.slots(np.arange(10)))])


def test_dense_tensors_give_their_nonzero_units(kernels, dtype, at):
    rng = np.random.default_rng(4)
    for (units, width, parts), density in product(SHAPES, (0.0, 0.05, 0.6, 1.0)):
        tensors = at.Tensors(kernels, kernels.geometry(units, width, parts, dense=True), dtype)
        tensor = random_values(dtype, units, width, rng)
        keep = rng.random(units) < density
        column = rng.integers(0, width, units)  # one value a row is enough
        mask = np.zeros((units, width), bool)
        mask[np.arange(units), column] = keep
        tensor = np.where(mask, tensor, tensor.dtype.type(0))
        ids = np.flatnonzero((dtype.widen(tensor) != 0).any(axis=1))
        bitmap, out = tensors.place_dense(tensor)
        case = units, width, parts, density
        assert np.array_equal(bitmap, expected_marks(tensors, ids)), case
        assert np.array_equal(out, tensor[ids][np.argsort(tensors.slots(ids))]), case


def test_nan_is_marked_and_negative_zero_is_not(kernels, dtype, at):
    tensors = at.Tensors(kernels, kernels.geometry(200, 1, 3, dense=True), dtype)
    special = dtype.narrow(np.array([np.nan, -0.0, 0.0, np.inf, -np.inf, 1e-7], np.float32))
    tensor = np.concatenate([special, np.zeros(194, special.dtype)])[:, None].copy()
    assert np.array_equal(tensors.mark_dense(tensor), expected_marks(tensors, np.array([0, 3, 4, 5])))


def test_payload_bits_travel_unchanged(kernels, dtype, at):
    """A signalling NaN, a negative zero and a subnormal are not added to anything, so no bit may change."""
    bits = {"f32": np.uint32, "f64": np.uint64, "f16": np.uint16, "bf16": np.uint16}[dtype.name]
    size = np.dtype(bits).itemsize * 8
    mantissa = {"f32": 23, "f64": 52, "f16": 10, "bf16": 7}[dtype.name]
    signalling = (1 << (size - 1)) - (1 << mantissa) + 1
    stored = np.array([signalling, 1 << (size - 1), 1, 5, 7], bits).view(dtype.storage)[:, None].copy()
    tensors = at.Tensors(kernels, kernels.geometry(5, 1, 2, dense=True), dtype)
    bitmap, out = tensors.place_units(np.arange(5), stored)
    assert np.array_equal(tensors.expand_dense(bitmap, out).view(bits), stored.view(bits))


@pytest.mark.parametrize("bad", [-1, 10, 1 << 62, -(1 << 63)])
def test_a_unit_out_of_range_is_named_with_its_position(kernels, dtype, at, bad):
    tensors = at.Tensors(kernels, kernels.geometry(10, 2, 2), dtype)
    with pytest.raises(TensorError, match=rf"unit {bad}, at position 2") as raised:
        tensors.mark_units(np.array([3, 9, bad, 0]))
    assert raised.value.diagnostics[0].id == "unit-out-of-range"


def test_units_that_were_not_marked_are_refused(kernels, dtype, at):
    tensors = at.Tensors(kernels, kernels.geometry(10, 2, 2), dtype)
    bitmap = tensors.mark_units(np.array([1, 2]))
    before, count = tensors.rank(bitmap)
    slots, values, out = tensors.slots(np.array([1, 3])), tensors.values(2), tensors.values(2)
    with pytest.raises(InternalError):
        kernels.place_units(
            dtype.name, tensors.geometry, at.address(slots), 2, at.address(values), at.address(bitmap),
            at.address(before), count, 1, [at.address(out)] * 2,
        )  # fmt: skip


@pytest.mark.parametrize("units, parts", [(1, 1), (200, 7), (5, 9), (1000, 3)])
def test_marking_tells_the_slot_of_every_unit(kernels, dtype, at, units, parts):
    tensors = at.Tensors(kernels, kernels.geometry(units, 1, parts), dtype)
    ids = np.random.default_rng(8).integers(0, units, 3 * units)
    assert np.array_equal(tensors.mark_slots(ids)[1], tensors.slots(ids))


def test_rank_counts_the_bits_below_each_word(kernels, at):
    bitmap = np.random.default_rng(5).integers(0, 1 << 63, 1000).astype(np.uint64)
    before = np.empty(1000, np.uint64)
    total = kernels.rank(at.address(bitmap), 1000, at.address(before))
    counts = [int(word).bit_count() for word in bitmap]
    assert total == sum(counts)
    assert np.array_equal(before, np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.uint64))
