"""Union, merge, filling up and leaving out: the bits of the CPU's kernels."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fuzz import tried
from tests.support.pieces import Piece, ranks_of, rubbish, table, words_of
from zenc.scheme.model import Format
from zenc.wire.constants import DTYPE_NUMBERS, WIRE_FORMATS, WIRE_NUMBERS

BITS = {"f32": np.uint32, "f64": np.uint64, "f16": np.uint16, "bf16": np.uint16}
MANTISSA = {"f32": 23, "f64": 52, "f16": 10, "bf16": 7}
WIDE_ROW = 128
"""Bytes of a row from which on rows are summed when their number is known."""
FUZZ = settings(max_examples=tried(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def special(rng, name, shape) -> np.ndarray:
    """Draw bits of anything: NaN with payloads, infinities, subnormals, zeros of both signs, and numbers near to 1."""
    bits = BITS[name]
    size, mantissa = np.dtype(bits).itemsize * 8, MANTISSA[name]
    infinity = (1 << (size - 1)) - (1 << mantissa)
    choices = np.array([infinity, infinity | 1, infinity | 1 << (mantissa - 1) | 3, 0, 1, 5, infinity - 1], bits)
    one = infinity >> 1 & infinity
    near = bits(one) + rng.integers(0, 1 << mantissa, shape).astype(bits)
    values = np.where(rng.random(shape) < 0.3, choices[rng.integers(0, len(choices), shape)], near)
    return values ^ (rng.integers(0, 2, shape).astype(bits) << bits(size - 1))


def drawn(at, rng, name, slots, width, density, start=0, block=1) -> Piece:
    """Draw rows of anything in whole blocks of slots."""
    present = np.flatnonzero(np.repeat(rng.random(-(-slots // block)) < density, block)[:slots])
    piece = Piece(slots, at.bitmap_of(present, slots)).ranked(start)
    piece.values = special(rng, name, (piece.count + 1, width))
    return piece


def empty(name, slots, width, count=0) -> Piece:
    """Return a target whose bitmap and rows are rubbish."""
    values = np.full((count + 1, width), 0xA5, BITS[name])
    return Piece(slots, rubbish(words_of(slots)), values=values)


def pieces_of(lists) -> np.ndarray:
    """Return where each target's pieces are: (first, number)."""
    numbers = [len(pieces) for pieces in lists]
    return np.array([np.cumsum([0, *numbers[:-1]]), numbers], np.uint64).T.copy()


def merged(device, name, lists, slots, width, blocks=3, order=None, summing="values"):
    """Return the unions of lists of pieces, and their sums: in one launch for all of them if rows are narrow, else in
    two.

    Single values are summed as launchers do it, in two launches but for f64, in room that is there already;
    ``summing`` names the second one's kernel.

    Threads run in an order drawn from ``order``, if that is above 0.
    """
    at_once = width * BITS[name]().itemsize < WIDE_ROW
    counts = [
        min(n, sum(piece.count for piece in each)) if at_once else 0 for n, each in zip(slots, lists, strict=True)
    ]
    targets = [empty(name, n, width, count) for n, count in zip(slots, counts, strict=True)]
    for target, count in zip(targets, counts, strict=True):
        target.count, target.ranks = count, rubbish(ranks_of(target.slots))
    pieces, of = table([piece for pieces in lists for piece in pieces]), pieces_of(lists)
    grid = (blocks, max(len(targets) - 1, 1))
    tiles = 2 + max(words_of(n) for n in slots) // 64  # more than enough: tiles have 64 words or more
    if not at_once:
        targets = [replace(target, values=None) for target in targets]
    arguments = [table(targets), len(targets), of, pieces, width, DTYPE_NUMBERS[name]]
    bits = 8 * BITS[name]().itemsize
    work = np.zeros(tiles * len(targets), np.uint64)
    apart = width == 1 and bits < 64
    marks = table([replace(target, values=None) for target in targets]) if apart else arguments[0]
    device.launch(f"zenc_sum_{bits}", grid, [marks, *arguments[1:], work, tiles], seed=order)
    if apart:
        device.launch(f"zenc_sum_{summing}_{bits}", grid, [*arguments[:4], DTYPE_NUMBERS[name]], seed=order)
    for target in targets:
        mine, expected = target.ranks, target.ranked().ranks
        assert np.array_equal(mine, expected)
        if at_once:
            assert (target.values[target.count :] == 0xA5).all(), "what there is room for beyond the sums"
            target.values = target.values[: target.count + 1]
        else:
            target.values = np.full((target.count + 1, width), 0xA5, BITS[name])
            target.ranked(start=3)
    if not at_once:
        arguments[0] = table(targets)
        device.launch(f"zenc_merge_{bits}", grid, arguments, seed=order)
    return targets


def cpu_merged(kernels, at, name, pieces, slots, width):
    target, bitmaps = empty(name, slots, width), [at.address(piece.bitmap) for piece in pieces]
    words = words_of(slots)
    count = kernels.union(bitmaps, words, at.address(target.bitmap))
    target.values = np.full((count + 1, width), 0xA5, BITS[name])
    values = [at.address(piece.values) for piece in pieces]
    assert kernels.merge(name, bitmaps, values, words, width, at.address(target.values)) == count
    return target


def assert_same_sums(at, name, target, expected, pieces):
    """Check for the same bits, and for one NaN alone where a sum, not a single value, is one."""
    assert np.array_equal(target.bitmap, expected.bitmap) and np.array_equal(target.values, expected.values)
    bits, held = BITS[name], np.concatenate([at.occupied(piece.bitmap) for piece in pieces])
    size, mantissa = np.dtype(bits).itemsize * 8, MANTISSA[name]
    infinity = (1 << (size - 1)) - (1 << mantissa)
    summed = np.append(np.unique(held, return_counts=True)[1] > 1, False)
    sums = target.values[summed]
    assert (sums[(sums & bits((1 << (size - 1)) - 1)) > infinity] == infinity | 1 << (mantissa - 1)).all()


@pytest.mark.parametrize("width", [1, 3, 15, 16, 64, 200])
def test_sums_are_those_of_the_cpu(device, permuting, at, dtype, width):
    """Parts of all sizes have 1 to 40 pieces, in one launch."""
    rng = np.random.default_rng(21)
    sizes = [(1, 1), (63, 2), (64, 3), (65, 9), (300, 40), (1000, 5), (0, 2), (4097 if width < 16 else 500, 4)]
    slots = [n for n, _ in sizes]
    lists = [
        [drawn(at, rng, dtype.name, n, width, density, start=k) for k, density in enumerate(rng.random(m) ** 3)]
        for n, m in sizes
    ]
    for target, pieces, n in zip(merged(device, dtype.name, lists, slots, width), lists, slots, strict=True):
        expected = cpu_merged(permuting, at, dtype.name, pieces, n, width)
        assert_same_sums(at, dtype.name, target, expected, pieces)


@FUZZ
@given(
    slots=st.integers(0, 700),
    m=st.integers(1, 9),
    width=st.sampled_from([1, 1, 2, 3, 17, 64]),
    block=st.sampled_from([1, 32, 64, 256]),
    density=st.floats(0, 1),
    name=st.sampled_from(list(BITS)),
    blocks=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_pieces_are_merged_as_on_the_cpu(
    device, permuting, at, slots, m, width, block, density, name, blocks, seed
):
    """Single values also where whole blocks of slots are summed at once."""
    rng, slots = np.random.default_rng(seed), slots * (4 if block > 1 else 1)
    pieces = [drawn(at, rng, name, slots, width, density * rng.random(), block=block) for _ in range(m)]
    target = merged(device, name, [pieces], [slots], width, blocks, seed % 4, "values" if block == 1 else "blocks")[0]
    assert_same_sums(at, name, target, cpu_merged(permuting, at, name, pieces, slots, width), pieces)


@pytest.mark.parametrize("width", [1, 64])
def test_one_alone_keeps_its_bits(device, at, dtype, width):
    rng = np.random.default_rng(22)
    pieces = [Piece(200, at.bitmap_of(np.arange(k, 200, 3), 200)).ranked() for k in range(3)]
    for piece in pieces:
        piece.values = special(rng, dtype.name, (piece.count, width))
    target = merged(device, dtype.name, [pieces], [200], width)[0]
    for k, piece in enumerate(pieces):
        assert np.array_equal(target.values[:-1][k::3], piece.values)


@pytest.mark.parametrize("wire", [format for format in WIRE_FORMATS if format is Format.DENSE or format.block])
def test_what_a_format_fills_up_is_filled_as_on_the_cpu(device, permuting, at, wire):
    rng = np.random.default_rng(23)
    drafts = [(n, d) for n in (0, 1, 63, 64, 65, 1000, 4097) for d in (0, 0.001, 0.02, 0.5, 1)]
    pieces = [drawn(at, rng, "f32", n, 3, density, start=2) for n, density in drafts]
    targets = [empty("f32", piece.slots, 3) for piece in pieces]
    for target in targets:
        target.format = WIRE_NUMBERS[wire]
    grid = (2, len(pieces) - 1)
    device.launch("zenc_fill", grid, [table(targets), len(pieces), table(pieces)])
    expected = [filled(permuting, at, wire, piece) for piece in pieces]
    for target, (bitmap, _) in zip(targets, expected, strict=True):
        assert np.array_equal(target.bitmap, bitmap)
        target.ranked(start=1)
        target.values = np.full((target.count + 1, 3), 0xA5, np.uint32)
    device.launch("zenc_spread", grid, [table(targets), len(pieces), table(pieces), 12])
    for target, (_, values) in zip(targets, expected, strict=True):
        assert np.array_equal(target.values, values)
    device.launch("zenc_mark_absent_32", grid, [table(targets), len(pieces), table(pieces), 3])
    for piece, target, (bitmap, values) in zip(pieces, targets, expected, strict=True):
        where = at.address(piece.bitmap), at.address(bitmap)
        permuting.mark_absent("f32", *where, piece.slots, 3, at.address(values))
        assert np.array_equal(target.values, values)
        absent = ~np.isin(at.occupied(bitmap), at.occupied(piece.bitmap))
        assert (values[:-1][absent] == 1 << 31).all() and not (values[:-1][~absent] == 1 << 31).any()


def filled(kernels, at, wire, piece):
    """Return (bitmap, values) of the CPU, and a row of rubbish."""
    bitmap = rubbish(words_of(piece.slots))
    if wire is Format.DENSE:
        kernels.fill_bitmap(at.address(bitmap), piece.slots)
        count = piece.slots
    else:
        count = kernels.fill_blocks(at.address(piece.bitmap), piece.slots, wire.block, at.address(bitmap))
    out = np.full((count + 1, 3), 0xA5, np.uint32)
    where = at.address(piece.bitmap), at.address(bitmap)
    kernels.spread("f32", *where, piece.slots, 3, at.address(piece.values), at.address(out))
    return bitmap, out


@pytest.mark.parametrize("width, order", [(1, 0), (3, 1), (31, 2), (32, 0), (64, 3), (200, 0)])
@pytest.mark.parametrize("marked", [False, True])
def test_zero_rows_are_left_out_as_on_the_cpu(device, permuting, at, dtype, width, order, marked):
    """The marked ones are rows of -0 only."""
    rng = np.random.default_rng(24)
    drafts = [(n, d) for n in (0, 1, 63, 64, 65, 700) for d in (0, 0.3, 1)]
    pieces = [drawn(at, rng, dtype.name, n, width, density, start=4) for n, density in drafts]
    for piece in pieces:
        zeros = rng.random((piece.count + 1, width)) < rng.choice([0.5, 0.99, 1], (piece.count + 1, 1))
        sign = BITS[dtype.name](1) << BITS[dtype.name](piece.values.itemsize * 8 - 1)
        piece.values[zeros] = sign * rng.choice([0, 1, 1, 1], zeros.sum()).astype(sign.dtype)
    targets = [empty(dtype.name, piece.slots, width) for piece in pieces]
    grid, row_bytes = (2, len(pieces) - 1), width * pieces[0].values.itemsize
    of, bits = [table(targets), len(pieces), table(pieces)], 8 * pieces[0].values.itemsize
    device.launch(f"zenc_mark_nonzero_{bits}", grid, [*of, width, int(marked)], seed=order)
    for target, piece in zip(targets, pieces, strict=True):
        kept, words = rubbish(len(piece.bitmap)), len(piece.bitmap)
        where = at.address(piece.bitmap), words, width, at.address(piece.values)
        count = permuting.mark_nonzero(dtype.name, *where, at.address(kept), marked)
        assert np.array_equal(target.bitmap, kept)
        assert target.ranked(start=9).count == count
        target.values = np.full((count + 1, width), 0xA5, BITS[dtype.name])
    spread, more = (f"zenc_spread_values_{bits}", []) if width == 1 else ("zenc_spread", [row_bytes])
    device.launch(spread, grid, [table(targets), len(pieces), table(pieces), *more], seed=order)
    for target, piece in zip(targets, pieces, strict=True):
        rows = at.occupied(piece.bitmap)
        keeps = np.isin(rows, at.occupied(target.bitmap))
        assert np.array_equal(target.values[:-1], piece.values[:-1][keeps])
        assert (target.values[-1] == 0xA5).all()
