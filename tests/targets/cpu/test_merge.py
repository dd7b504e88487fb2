"""Union and merge against adding rows one after the other in numpy, and sparsifying, which leaves out zeros alone."""

import random
import subprocess
from itertools import product

import numpy as np
import pytest

from zenc.codegen.build.toolchain import toolchain
from zenc.codegen.render import include_dirs
from zenc.scheme.model import Format
from zenc.wire.constants import WIRE_FORMATS
from zenc.wire.formats import CPU_COSTS, GPU_COSTS, FormatCosts, index_bytes, wire_layout


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


PROGRAM = """
#include <cstdio>
#include "zenc/formats.h"
int main() {
    long long format;
    unsigned long long slots, count, c[5];
    while (std::scanf("%lld %llu %llu", &format, &slots, &count) == 3) {
        for (auto& cost : c) std::scanf("%llu", &cost);
        const zenc::FormatCosts costs = {c[0], c[1], c[2], c[3], c[4]};
        const zenc::WireLayout chosen = zenc::wire_layout(format, slots, count, 12, costs);
        const unsigned long long most = zenc::most_index_bytes(format, slots, count, costs);
        std::printf("%lld %llu %llu %llu\\n", chosen.format, chosen.index_bytes, chosen.body_bytes, most);
    }
}
"""
ASKED = (*WIRE_FORMATS, Format.AUTO)


def cases() -> list[tuple[int, int, int, FormatCosts]]:
    """Return format, slots, count and costs: all of small parts, random ones to 2^62 slots, some around powers of two.

    Costs are known of some parts of up to 2^40 slots: the shipped ones, or random ones of any bits.
    """
    draw = random.Random(5)
    pairs = [(slots, count) for slots in range(70) for count in range(slots + 1)]
    for _ in range(3000):
        slots = draw.randrange(1 << draw.randrange(1, 63))
        pairs += [(slots, draw.randint(0, slots)), (slots, slots >> draw.randrange(63))]
    for bits in range(63):
        pairs += [(1 << bits, min(1 << bits, (1 << bits - bits // 2) + near)) for near in (-1, 0, 1)]
    sound = [(f, *pair) for pair in pairs for f in range(len(ASKED)) if pair[1] >> 58 == 0]
    known = [(len(WIRE_FORMATS), slots, count, costs(draw)) for slots, count in pairs * 3 if slots <= 1 << 40]
    return [*((*case, FormatCosts()) for case in sound), *known]


def costs(draw: random.Random) -> FormatCosts:
    """Return shipped costs over some link, or any."""
    byte, *kernels = (draw.randint(0, 1 << draw.randint(0, 20)) for _ in range(5))
    any = FormatCosts(byte or 1, *kernels)
    return draw.choice([any, CPU_COSTS._replace(byte=any.byte), GPU_COSTS._replace(byte=any.byte)])


def test_both_lay_out_the_same(tmp_path):
    source, program = tmp_path / "weigh.cpp", tmp_path / "weigh"
    source.write_text(PROGRAM)
    includes = [f"-I{path}" for path in include_dirs("cpu")]
    subprocess.run([*toolchain().command, "-std=c++17", *includes, str(source), "-o", str(program)], check=True)
    asked = cases()
    text = "".join(f"{format} {slots} {count} {' '.join(map(str, by))}\n" for format, slots, count, by in asked)
    found = subprocess.run([program], input=text, capture_output=True, text=True, check=True).stdout.splitlines()
    for (format, slots, count, by), line in zip(asked, found, strict=True):
        chosen, index, body, most = map(int, line.split())
        assert (WIRE_FORMATS[chosen], index, body) == wire_layout(ASKED[format], slots, count, 12, by)
        assert index == index_bytes(WIRE_FORMATS[chosen], slots, count) <= most
