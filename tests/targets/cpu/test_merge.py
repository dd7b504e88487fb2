"""Union and merge against adding rows one after the other in numpy."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest


def segment(at, dtype, rng, slots, width, density):
    present = np.flatnonzero(rng.random(slots) < density)
    values = dtype.narrow(rng.standard_normal((len(present), width)).astype(np.float32))
    return present, at.bitmap_of(present, slots), values


def merge(kernels, at, dtype, bitmaps, values, width):
    words = len(bitmaps[0])
    union = np.full(words, 0xA5, np.uint64)
    count = kernels.union([at.address(b) for b in bitmaps], words, at.address(union))
    out = np.zeros((count, width), dtype.storage)
    addresses = [at.address(v) for v in values]
    assert kernels.merge(
        dtype.name, [at.address(b) for b in bitmaps], addresses, words, width, at.address(out)
    ) == count  # fmt: skip
    return union, out


@pytest.mark.parametrize("m", [1, 2, 3, 4, 17])
def test_merge_adds_in_the_order_of_the_list(kernels_of, at, dtype, m):
    rng = np.random.default_rng(8)
    for width, density in product((1, 3, 64, 1000), (0.0, 0.02, 0.5, 1.0)):
        slots = 300 if width < 1000 else 70
        parts = [segment(at, dtype, rng, slots, width, density) for _ in range(m)]
        union, out = merge(kernels_of("contiguous"), at, dtype, [p[1] for p in parts], [p[2] for p in parts], width)
        expected_slots = np.unique(np.concatenate([p[0] for p in parts]))
        assert np.array_equal(at.occupied(union), expected_slots), (width, density)
        for slot, row in zip(expected_slots, out, strict=True):
            rows = [values[np.searchsorted(present, slot)] for present, _, values in parts if slot in present]
            assert np.array_equal(row, dtype.sum(rows)), (width, density, slot)


@pytest.mark.parametrize("width", [1, 3, 64])
@pytest.mark.parametrize("m", [2, 3])
def test_nan_and_infinity_go_where_ieee_sends_them(kernels_of, at, dtype, width, m):
    rows = np.array([np.nan, np.inf, -np.inf, -0.0, 1.0], np.float32)
    values = [dtype.narrow(np.repeat(rows[:, None], width, axis=1).copy()) for _ in range(m)]
    bitmap = at.bitmap_of(np.arange(5), 5)
    _, out = merge(kernels_of("contiguous"), at, dtype, [bitmap] * m, values, width)
    with np.errstate(invalid="ignore"):
        expected = np.repeat((rows * np.float32(m))[:, None], width, axis=1)
    assert np.array_equal(dtype.widen(out), expected.astype(np.float64), equal_nan=True)


@pytest.mark.parametrize("width", [1, 2, 64])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_a_slot_of_one_segment_keeps_its_bits(kernels_of, at, dtype, width, m):
    """A signalling NaN and a negative zero are in one segment each."""
    bits = {"f32": np.uint32, "f64": np.uint64, "f16": np.uint16, "bf16": np.uint16}[dtype.name]
    size = np.dtype(bits).itemsize * 8
    mantissa = {"f32": 23, "f64": 52, "f16": 10, "bf16": 7}[dtype.name]
    signalling = (1 << (size - 1)) - (1 << mantissa) + 1
    rows = np.array([signalling, 1 << (size - 1), 1][:m], bits)
    values = [np.full((1, width), row, bits).view(dtype.storage) for row in rows]
    bitmaps = [at.bitmap_of([k], m) for k in range(m)]
    _, out = merge(kernels_of("contiguous"), at, dtype, bitmaps, values, width)
    assert np.array_equal(out.view(bits), np.repeat(rows[:, None], width, axis=1))


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_sixteen_bits_widen_and_round_like_torch(kernels_of, at, name):
    """Every stored value plus every one of some others, in float32, is rounded to nearest even."""
    dtype = next(d for d in at.DTYPES if d.name == name)
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype.storage)[:, None].copy()
    bitmap = at.bitmap_of(np.arange(1 << 16), 1 << 16)
    for other in (0.0, 1.0, 3e-8, 6e-5, -2.5e-7, 65504.0, 1e30):
        added = dtype.narrow(np.full((1 << 16, 1), other, np.float32).clip(-65504, 65504))
        _, out = merge(kernels_of("contiguous"), at, dtype, [bitmap, bitmap], [every, added], 1)
        with np.errstate(invalid="ignore", over="ignore"):
            expected = dtype.narrow((dtype.widen(every) + dtype.widen(added)).astype(np.float32))
        mine, theirs = dtype.widen(out), dtype.widen(expected)
        assert np.array_equal(np.isnan(mine), np.isnan(theirs))
        number = ~np.isnan(theirs)
        assert np.array_equal(out[number], expected[number])
