"""Placing of units and of dense rows, permutations with their inverses, and expansion back to tensors."""

from itertools import product

import numpy as np
import pytest

from zenc.errors import InternalError, TensorError

SHAPES = [
    (1, 1, 1), (1, 3, 4), (2, 64, 3), (63, 1, 2), (200, 3, 7), (130, 64, 4), (40, 1000, 3), (999, 1, 1), (5, 2, 9),
]  # fmt: skip


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


SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 10, 15, 16, 17, 31, 64, 97, 100, 101, 127, 128, 999, 4093, 4096, 65536, 65537, 100_000]
WIDTH = 0
"""Width of rows in a tensor of the greatest length; rows are permuted one by one."""
KNOWN_SMALL = [969, 63, 949, 465, 104, 624, 229, 867]
KNOWN_LARGE = [1094348813221, 472156219053, 156453642845]


def slots_of(kernels, at, units, size):
    units, out = np.ascontiguousarray(units, np.int64), np.empty(len(units), np.int64)
    kernels.slots_of_units(kernels.geometry(size, WIDTH, 1), at.address(units), len(units), at.address(out))
    return out


def units_of(kernels, at, slots, size):
    slots, out = np.ascontiguousarray(slots, np.int64), np.empty(len(slots), np.int64)
    kernels.units_of_slots(kernels.geometry(size, WIDTH, 1), at.address(slots), len(slots), at.address(out))
    return out


@pytest.mark.parametrize("size", SIZES)
def test_it_is_a_bijection_with_its_inverse(permuting, at, size):
    slots = slots_of(permuting, at, np.arange(size), size)
    assert np.array_equal(np.sort(slots), np.arange(size))
    assert np.array_equal(units_of(permuting, at, slots, size), np.arange(size))


@pytest.mark.parametrize(
    "size", [(1 << 31) - 1, 0xFFFF0000, 0xFFFF0001, 1 << 32, (1 << 40) + 12_345, 10**15, (1 << 61) - 1, (1 << 62) - 1]
)
def test_samples_of_huge_tensors_come_back(permuting, at, size):
    rng = np.random.default_rng(10)
    units = np.unique(np.concatenate([rng.integers(0, size, 20_000), [0, 1, size - 2, size - 1]]))
    slots = slots_of(permuting, at, units, size)
    assert slots.min() >= 0 and slots.max() < size
    assert len(np.unique(slots)) == len(units)
    assert np.array_equal(units_of(permuting, at, slots, size), units)


def test_known_values_never_change(permuting, at):
    """Ranks with different builds of zenc must agree: a change here is a change of ZENC_ABI_VERSION."""
    assert slots_of(permuting, at, np.arange(8), 1000).tolist() == KNOWN_SMALL
    assert slots_of(permuting, at, np.arange(3), 1 << 40).tolist() == KNOWN_LARGE


def gradients(size):
    """Draw sets of units as gradients have them: skewed, regular, or both."""
    rng = np.random.default_rng(11)
    ranks = np.arange(1, size + 1)
    yield "head", np.arange(size // 50)
    yield "tail", np.arange(size - size // 50, size)
    yield "middle", np.arange(size // 3, size // 3 + size // 50)
    for stride in (2, 3, 7, 64, 100, 512, 1000):
        yield f"every {stride}", np.arange(0, size, stride)
    yield "powers of two and near", np.unique(np.concatenate([(1 << np.arange(17))[:, None] + np.arange(64)]))
    yield "columns of the grid", np.arange(0, size, int(np.ceil(np.sqrt(size))))
    yield "zipf", np.unique(rng.choice(size, 20_000, p=(1 / ranks) / (1 / ranks).sum()))
    yield "zipf with blocks", np.unique((rng.zipf(1.3, 5000) % (size // 16))[:, None] * 16 + np.arange(16))
    yield "random", rng.permutation(size)[: size // 50]


@pytest.mark.parametrize("parts", [2, 4, 16, 128])
def test_parts_are_as_even_as_after_a_random_permutation(permuting, at, parts):
    """Chi-square of the units in each part, over gradients and keys (they depend on the size), is standardised."""
    scores = []
    for size in range(200_000, 200_008):
        for _, units in gradients(size):
            units = units[units < size]
            counts = np.bincount(slots_of(permuting, at, units, size) // -(-size // parts), minlength=parts)
            mean, freedom = len(units) / parts, parts - 1
            spread = 1 - len(units) / size  # drawing without replacement
            chi2 = ((counts - mean) ** 2 / mean).sum() / spread
            scores.append((chi2 - freedom) / np.sqrt(2 * freedom))
    scores = np.array(scores)
    assert scores.max() < 9.0  # the upper tail of chi-square with one degree of freedom is long
    assert abs(scores.mean()) < 4 / np.sqrt(len(scores))


def test_another_seed_is_another_permutation(permuting, kernels_of, at):
    """Two permutations are random to each other: about one unit in all stays where it was."""
    mine = slots_of(permuting, at, np.arange(10_000), 10_000)
    theirs = slots_of(kernels_of("another permutation"), at, np.arange(10_000), 10_000)
    assert (mine == theirs).sum() < 10


@pytest.mark.parametrize("unit", [0, 1, 17, 49])
def test_a_unit_lands_anywhere_under_other_keys(permuting, at, unit):
    """Tensors of other sizes have other keys: the place of one unit, as a fraction, is evenly spread over them."""
    offsets = [slots_of(permuting, at, np.array([unit]), size)[0] / size for size in range(1000, 2000)]
    counts = np.histogram(offsets, 10, (0, 1))[0]
    assert ((counts - 100.0) ** 2 / 100).sum() < 40
