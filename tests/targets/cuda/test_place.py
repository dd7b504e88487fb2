"""Mark, rank and place: the bits of the CPU's kernels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz import tried
from tests.support.packing import FEW_INPUTS, MOST_INPUTS, Packer
from tests.support.survival import faults_of

SHAPES = [
    (0, 1, 2), (1, 1, 1), (1, 3, 4), (2, 64, 3), (63, 1, 2), (64, 1, 1), (65, 5, 9), (200, 3, 7), (130, 64, 4),
    (9, 1000, 3), (1000, 1, 6), (5, 2, 9), (7, 0, 2),
]  # fmt: skip
MAPPINGS = ["contiguous", "permutation", "permuted words", "hierarchical_hash"]


@pytest.fixture(params=MAPPINGS)
def both(request, device_of, kernels_of):
    """Kernels of one mapping for GPUs, and those for the CPU."""
    return device_of(request.param), kernels_of(request.param)


@pytest.fixture
def packers(both, at, dtype):
    """Kernels for GPUs by units, width and parts, beside those for the CPU in their ``tensors``."""
    device, kernels = both

    def packer(units, width, parts, blocks=2):
        return Packer(device, at.Tensors(kernels, kernels.geometry(units, width, parts, dense=True), dtype), blocks)

    return packer


def drawn(dtype, rows, width, rng):
    """Draw bits of all kinds: NaN, infinities, zeros of both signs, subnormal numbers, and others."""
    values = dtype.narrow(rng.standard_normal((rows, width)) * 10.0 ** rng.integers(-9, 5, (rows, width)))
    special = dtype.narrow(np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 6e-8], np.float64))
    return np.where(rng.random((rows, width)) < 0.1, rng.choice(special, (rows, width)), values)


def bits(values):
    return np.ascontiguousarray(values).view(np.uint8)


def same(dtype, mine, others, computed):
    """Return whether bits are the same, up to the payload of a computed NaN, which depends on the machine."""
    if computed:
        mine, others = dtype.canonical(mine), dtype.canonical(others)
    return np.array_equal(bits(mine), bits(others))


def unit_faults(packer, ids, values, divisor):
    tensors = packer.tensors
    marked, (bitmap, slots) = packer.mark_units(ids), tensors.mark_slots(ids)
    mine, others = marked.place_units(values, divisor), tensors.place_units(ids, values, divisor)[1]
    return faults_of(
        other_bitmap=np.array_equal(marked.bitmap, bitmap),
        other_slots=np.array_equal(marked.slots, slots),
        other_counts=[piece.count for piece in marked.parts] == tensors.part_counts(bitmap),
        other_bits=same(tensors.dtype, mine, others, computed=divisor != 1 or marked.distinct != len(ids)),
    )


def dense_faults(packer, tensor, divisor):
    tensors = packer.tensors
    marked = packer.mark_dense(tensor)
    mine, others = marked.place_dense(tensor, divisor), tensors.place_dense(tensor, divisor)[1]
    found = faults_of(
        other_bitmap=np.array_equal(marked.bitmap, tensors.mark_dense(tensor)),
        other_bits=same(tensors.dtype, mine, others, computed=divisor != 1),
    )
    if packer.packs_in_one_pass:
        found += packed_faults(packer, tensor, divisor, others, tensors.part_counts(marked.bitmap))
    return found


def packed_faults(packer, tensor, divisor, expected, counts):
    """Return faults of packing: in one pass there are as many values of a part as there is room for."""
    found = []
    for room, picks in ((max(counts) // 2 + 1, False), (max(counts) // 2 + 2, True), (max(counts) + 1, False)):
        starts = np.cumsum([0, *counts])
        parts = packer.pack_values(tensor, room, divisor, picks=picks)
        found += faults_of(other_counts_in_one_pass=[part.count for part in parts] == counts)
        for part, start in zip(parts, starts, strict=False):
            there = min(room, part.count)
            rows = expected[start : start + there]
            alike = same(packer.tensors.dtype, part.values[:there], rows, computed=divisor != 1)
            found += faults_of(other_bits_in_one_pass=alike)
    return found


def popular_ids(units, n, rng):
    """Draw ids, some of which come very often."""
    return (units * rng.random(n) ** 4).astype(np.int64)


def sparse(tensor, density, rng):
    """Return values with zeros where nothing is kept: in most rows one value is enough."""
    kept = rng.random(tensor.shape) < density / max(tensor.shape[1], 1) ** 0.5
    return np.where(kept, tensor, tensor.dtype.type(0))


def test_distinct_units(packers, dtype):
    rng = np.random.default_rng(1)
    for units, width, parts in SHAPES:
        for density, divisor in ((0.1, 1), (0.0, 1), (1.0, 3)):
            ids = rng.permutation(units)[: round(units * density)]
            assert unit_faults(packers(units, width, parts), ids, drawn(dtype, len(ids), width, rng), divisor) == []


def test_units_that_come_several_times(packers, dtype):
    rng = np.random.default_rng(2)
    for units, width, parts in SHAPES[1:]:
        ids = popular_ids(units, 3 * units + 1, rng)
        for divisor in (1, 3):
            assert unit_faults(packers(units, width, parts), ids, drawn(dtype, len(ids), width, rng), divisor) == []


def test_dense_tensors(packers, dtype):
    rng = np.random.default_rng(3)
    for units, width, parts in SHAPES:
        for density, divisor in ((0.0, 1), (0.05, 1), (1.0, 3)):
            tensor = sparse(drawn(dtype, units, width, rng), density, rng)
            assert dense_faults(packers(units, width, parts), tensor, divisor) == []


@settings(max_examples=tried(12), deadline=None)
@given(data=st.data())
def test_a_kept_tensor_has_no_negative_zero_where_nothing_is_marked(device_of, kernels_of, at, data):
    """The rest of the tensor is as it was; marks and values are those of a tensor that is not kept."""
    mapping, dtype = data.draw(st.sampled_from(MAPPINGS)), data.draw(st.sampled_from(at.DTYPES))
    units, width = data.draw(st.sampled_from([(130, 4), (65, 33), (40, 300), (300, 3), (3000, 1)]))
    seed, zeros = data.draw(st.integers(1, 1 << 30)), data.draw(st.sampled_from([0.5, 0.97, 1.0]))
    kernels, rng = kernels_of(mapping), np.random.default_rng(seed)
    tensors = at.Tensors(kernels, kernels.geometry(units, width, data.draw(st.integers(1, 5)), dense=True), dtype)
    packer = Packer(device_of(mapping), tensors, data.draw(st.integers(1, 4)), seed)
    plain = np.where(rng.random((units, width)) < zeros, dtype.narrow(np.array(-0.0)), drawn(dtype, units, width, rng))
    kept = plain.copy()
    assert np.array_equal(packer.mark_dense(kept, clears=True).bitmap, tensors.mark_dense(plain))
    something = (dtype.widen(plain) != 0).any(axis=1, keepdims=True)
    assert np.array_equal(bits(kept), bits(np.where(something, plain, plain.dtype.type(0))))


@settings(max_examples=tried(25), deadline=None)
@given(data=st.data())
def test_any_shape_in_any_order(device_of, kernels_of, at, data):
    mapping = data.draw(st.sampled_from(MAPPINGS))
    units, width = data.draw(st.sampled_from([(1, 65), (63, 7), (64, 16), (65, 33), (300, 2), (1000, 1)]))
    parts, blocks = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 4))
    seed, dtype = data.draw(st.integers(1, 1 << 30)), data.draw(st.sampled_from(at.DTYPES))
    kernels, rng = kernels_of(mapping), np.random.default_rng(seed)
    tensors = at.Tensors(kernels, kernels.geometry(units, width, parts, dense=True), dtype)
    packer = Packer(device_of(mapping), tensors, blocks, seed)
    ids = popular_ids(units, data.draw(st.integers(0, 6 * units)), rng)
    assert unit_faults(packer, ids, drawn(dtype, len(ids), width, rng), data.draw(st.integers(1, 5))) == []
    assert dense_faults(packer, sparse(drawn(dtype, units, width, rng), 0.3, rng), 1) == []


@pytest.mark.parametrize("inputs", [MOST_INPUTS, MOST_INPUTS + 1, 9 * MOST_INPUTS])
def test_where_rows_become_popular(device, kernels_of, at, inputs):
    """Each row is summed, also the last one, of an input that takes no more than that."""
    kernels, dtype = kernels_of("contiguous"), at.DTYPES[0]
    packer = Packer(device, at.Tensors(kernels, kernels.geometry(3, 64, 1), dtype))
    for seed in (1, 2, 3):
        packer.seed, rng = seed, np.random.default_rng(seed)
        ids = rng.permutation(np.repeat([0, 1, 2], [inputs, 2, inputs]))
        assert unit_faults(packer, ids, drawn(dtype, len(ids), 64, rng), 1) == []


@pytest.mark.parametrize(("n", "units"), [(2, 1), (300, 200), (5000, 4000), (FEW_INPUTS, FEW_INPUTS)])
def test_one_block_groups_few_inputs_as_many_kernels_do(device, kernels_of, at, n, units):
    kernels, rng = kernels_of("contiguous"), np.random.default_rng(n)
    packer = Packer(device, at.Tensors(kernels, kernels.geometry(units, 1, 3), at.DTYPES[0]), seed=1)
    marked = packer.mark_units(rng.permutation(popular_ids(units, n, rng)))
    (keys, shift, starts, popular), (*others, listed) = marked.grouped(), marked.grouped(most_of_few=0)
    assert all(np.array_equal(mine, other) for mine, other in zip((keys, shift, starts), others, strict=True))
    assert popular[0] == listed[0] and set(popular[1 : 1 + popular[0]]) == set(listed[1 : 1 + listed[0]])


@pytest.mark.parametrize("width", [4, 64, 999])
def test_rows_that_lie_at_odd_addresses(packers, dtype, width):
    rng = np.random.default_rng(4)
    packer, ids = packers(70, width, 3), rng.permutation(70)
    tensor = drawn(dtype, 1, 70 * width + 1, rng)[0, 1:].reshape(70, width)
    assert dense_faults(packer, tensor, 1) == []
    assert unit_faults(packer, ids, tensor, 1) == []


def test_bits_of_a_row_that_comes_once_stay(packers, dtype):
    """Rows that come once, a signalling NaN, a negative zero and a subnormal, are beside rows that are summed."""
    kind = {2: np.uint16, 4: np.uint32, 8: np.uint64}[np.dtype(dtype.storage).itemsize]
    mantissa = {"f32": 23, "f64": 52, "f16": 10, "bf16": 7}[dtype.name]
    size = 8 * np.dtype(kind).itemsize
    words = np.array([(1 << size) - (1 << mantissa) + 1, 1 << (size - 1), 1, 5, 7, 7], kind)
    packer = packers(5, 1, 2)
    out = packer.mark_units(np.array([0, 1, 2, 3, 4, 4])).place_units(words.view(dtype.storage)[:, None].copy())
    order = np.argsort(packer.tensors.slots(np.arange(5)))
    assert out.view(kind)[order.argsort(), 0].tolist()[:4] == words.tolist()[:4]


@pytest.mark.parametrize("bad", [-1, 10, 1 << 62, -(1 << 63)])
def test_the_first_unit_out_of_range_is_named(device, kernels_of, at, bad):
    kernels = kernels_of("contiguous")
    packer = Packer(device, at.Tensors(kernels, kernels.geometry(10, 2, 2), at.DTYPES[0]))
    with pytest.raises(IndexError) as raised:
        packer.mark_units(np.array([3, 9, bad, 0, bad]))
    assert raised.value.args == (2,)
