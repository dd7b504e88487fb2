"""Sparsifying leaves out units that are all zero, as numpy does; nothing else is ever lost."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest


def sparsify(kernels, at, dtype, bitmap, values, width):
    """Return (the kept bitmap, its rows)."""
    words = len(bitmap)
    kept = np.full(words, 0xA5, np.uint64)
    count = kernels.mark_nonzero(dtype.name, at.address(bitmap), words, width, at.address(values), at.address(kept))
    out = np.zeros((count, width), dtype.storage)
    kernels.copy_kept(
        dtype.name, at.address(bitmap), at.address(kept), words, width, at.address(values), at.address(out)
    )
    return kept, out


def test_rows_of_zeros_go_and_all_others_stay(kernels_of, at, dtype):
    rng = np.random.default_rng(5)
    for width, filled, zeros in product((1, 2, 3, 64, 1000), (1.0, 0.5, 0.0), (0.0, 0.5, 0.97, 1.0)):
        slots = 300 if width < 1000 else 70
        present = np.flatnonzero(rng.random(slots) < filled)
        wide = rng.standard_normal((len(present), width)).astype(np.float32)
        wide[rng.random(len(present)) < zeros] = 0
        values = dtype.narrow(wide)
        kept, out = sparsify(kernels_of("contiguous"), at, dtype, at.bitmap_of(present, slots), values, width)
        chosen = (dtype.widen(values) != 0).any(axis=1)
        assert np.array_equal(at.occupied(kept), present[chosen]), (width, filled, zeros)
        assert np.array_equal(out.view(np.uint8), values[chosen].view(np.uint8)), (width, filled, zeros)


@pytest.mark.parametrize("width", [1, 3, 64, 200])
def test_any_bit_but_a_sign_counts(kernels_of, at, dtype, width):
    """A row has one value: the least denormal, any NaN, infinity, or -0, which doesn't count."""
    bits = {"f32": np.uint32, "f64": np.uint64, "f16": np.uint16, "bf16": np.uint16}[dtype.name]
    size = np.dtype(bits).itemsize * 8
    mantissa = {"f32": 23, "f64": 52, "f16": 10, "bf16": 7}[dtype.name]
    infinity = (1 << (size - 1)) - (1 << mantissa)
    sign = 1 << (size - 1)
    something = [1, infinity, infinity | 1, infinity | 1 << (mantissa - 1), 1 << mantissa, sign | 1, sign | infinity]
    for place in {0, width // 2, width - 1}:
        rows = np.zeros((2 * len(something) + 1, width), bits)
        rows[::2] = sign  # between them, and around them, zeros of the other sign
        rows[1::2, place] = something
        values = rows.view(dtype.storage)
        bitmap = at.bitmap_of(np.arange(len(rows)), len(rows))
        kept, out = sparsify(kernels_of("contiguous"), at, dtype, bitmap, values, width)
        assert np.array_equal(at.occupied(kept), np.arange(1, len(rows), 2))
        assert np.array_equal(out.view(bits), rows[1::2])
