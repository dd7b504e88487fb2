"""Bytes and verdicts of the CUDA kernels are those of the CPU's, bit for bit."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fuzz import tried
from tests.support.pieces import Piece, decoded, ranks, ranks_of, rubbish, table, whole, words_of
from tests.targets.cpu.test_codec import CORRUPT_INDICES
from zenc.scheme.model import Format
from zenc.wire.constants import WIRE_FORMATS, WIRE_NUMBERS
from zenc.wire.formats import index_bytes

SLOTS = (0, 1, 63, 64, 65, 1000, 4097)
DENSITIES = (0.0, 0.003, 0.02, 0.3, 0.5, 0.9, 1.0)
FUZZ = settings(max_examples=tried(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def drawn(at, rng, wire, slots, density, start=0) -> Piece:
    present = whole(wire, np.flatnonzero(rng.random(slots) < density), slots)
    piece = Piece(slots, at.bitmap_of(present, slots), format=WIRE_NUMBERS[wire]).ranked(start)
    piece.index = rubbish(index_bytes(wire, slots, piece.count) // 8 + 1)
    return piece


def cpu_index(kernels, at, piece) -> np.ndarray:
    out = rubbish(len(piece.index))
    wire = WIRE_FORMATS[piece.format]
    kernels.encode_index(wire, at.address(piece.bitmap), piece.slots, piece.count, at.address(out))
    return out


def encode(device, pieces, blocks, row_bytes=0, order=None):
    """Encode in one launch, of fewer rows than segments, in an order of threads by ``order``, if above 0."""
    grid = (blocks, max(len(pieces) - 1, 1))
    if blocks != 1:
        device.launch("zenc_clear_index", grid, [table(pieces), len(pieces)])
    device.launch("zenc_encode_index", grid, [table(pieces), len(pieces), row_bytes], seed=order)


@pytest.mark.parametrize("wire", WIRE_FORMATS)
@pytest.mark.parametrize("blocks", [1, 3])
def test_indices_are_written_as_on_the_cpu(device, permuting, at, wire, blocks):
    """A launch has all sizes and densities; ranks may count from anywhere."""
    rng = np.random.default_rng(11)
    pieces = [drawn(at, rng, wire, slots, density, start=7) for slots in SLOTS for density in DENSITIES]
    encode(device, pieces, blocks)
    for piece in pieces:
        assert np.array_equal(piece.index, cpu_index(permuting, at, piece)), (piece.slots, piece.count)


@FUZZ
@given(
    slots=st.integers(1, 5000),
    clusters=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.3), st.floats(0, 1)), max_size=4),
    share=st.floats(0, 1).map(lambda x: x**4),
    seed=st.integers(0, 2**32 - 1),
)
def test_clustered_slots_are_written_and_read_back(device, permuting, at, slots, clusters, share, seed):
    """Runs of present or absent slots make runs of ones and of zeros in the high bits of elias_fano."""
    rng = np.random.default_rng(seed)
    here = rng.random(slots) < share
    for first, length, density in clusters:
        run = slice(int(first * slots), int(first * slots + length * slots))
        here[run] = rng.random(len(here[run])) < density
    present = np.flatnonzero(here)
    pieces = []
    for wire in (Format.COO, Format.BITMAP, Format.ELIAS_FANO):
        piece = Piece(slots, at.bitmap_of(present, slots), format=WIRE_NUMBERS[wire]).ranked()
        piece.index = rubbish(index_bytes(wire, slots, piece.count) // 8 + 1)
        pieces.append(piece)
    encode(device, pieces, 2, order=seed % 4)
    for piece in pieces:
        assert np.array_equal(piece.index, cpu_index(permuting, at, piece))
    assert decode(device, pieces, order=seed % 4)[0] == [0, 0, 0]


@pytest.mark.parametrize("value_bytes", [2, 4, 8])
def test_zeros_stand_behind_the_values(device, at, value_bytes):
    rng = np.random.default_rng(12)
    pieces = [drawn(at, rng, Format.COO, slots, 0.1) for slots in (63, 64, 65, 1000)]
    for piece in pieces:
        piece.values = np.full(-(-piece.count * 3 * value_bytes // 8) * 8 + 8, 0xA5, np.uint8)
    encode(device, pieces, 2, 3 * value_bytes)
    for piece in pieces:
        used, padded = piece.count * 3 * value_bytes, len(piece.values) - 8
        assert (piece.values[:used] == 0xA5).all() and (piece.values[padded:] == 0xA5).all()
        assert not piece.values[used:padded].any()


def decode(device, pieces, blocks=2, order=None):
    copies = [
        replace(p, bitmap=rubbish(words_of(p.slots) + 1), ranks=rubbish(ranks_of(p.slots) + 1), values=None)
        for p in pieces
    ]
    for copy in copies[::2]:
        if copy.format == WIRE_NUMBERS[Format.BITMAP]:  # as it comes: the index is the bitmap
            copy.index = copy.bitmap = np.append(copy.index[: words_of(copy.slots)], rubbish(1))
    status = decoded(device, (blocks, max(len(pieces) - 1, 1)), copies, order)
    for copy in copies:
        assert copy.bitmap[-1] == copy.ranks[-1] == rubbish(1)[0]
        assert np.array_equal(copy.ranks[:-1], ranks(copy.bitmap[:-1]))
    return status, [copy.bitmap[:-1] for copy in copies]


@pytest.mark.parametrize("wire", WIRE_FORMATS)
@pytest.mark.parametrize("blocks", [1, 3])
def test_what_is_written_is_read_back(device, permuting, at, wire, blocks):
    rng = np.random.default_rng(13)
    pieces = [drawn(at, rng, wire, slots, density) for slots in SLOTS for density in DENSITIES]
    for piece in pieces:
        piece.index = cpu_index(permuting, at, piece)
    status, bitmaps = decode(device, pieces, blocks)
    assert status == [0] * len(pieces)
    for piece, bitmap in zip(pieces, bitmaps, strict=True):
        assert np.array_equal(bitmap, piece.bitmap)


@pytest.mark.parametrize("wire", [Format.COO, Format.ELIAS_FANO, Format.BITMAP, Format.BLOCK_8])
@pytest.mark.parametrize("density", [1e-5, 0.002, 0.4, 0.999])
def test_parts_of_several_tiles(device, permuting, at, wire, density):
    rng = np.random.default_rng(14)
    slots = 200_001
    pieces = [drawn(at, rng, wire, slots, density)]
    for run in (slice(70_000, 70_500), slice(199_000, 200_001), slice(0, 300)):
        present = whole(wire, np.unique(np.concatenate([np.arange(slots)[run], rng.integers(0, slots, 40)])), slots)
        piece = Piece(slots, at.bitmap_of(present, slots), format=WIRE_NUMBERS[wire]).ranked()
        piece.index = rubbish(index_bytes(wire, slots, piece.count) // 8 + 1)
        pieces.append(piece)
    encode(device, pieces, 3)
    for piece in pieces:
        assert np.array_equal(piece.index, cpu_index(permuting, at, piece))
    status, bitmaps = decode(device, pieces, 3)
    assert status == [0] * len(pieces)
    for piece, bitmap in zip(pieces, bitmaps, strict=True):
        assert np.array_equal(bitmap, piece.bitmap)


@settings(FUZZ, max_examples=tried(40))
@given(density=st.floats(0, 1).map(lambda x: x**6), tight=st.floats(0, 1), seed=st.integers(0, 2**32 - 1))
def test_tiles_find_what_concerns_them(device, permuting, at, density, tight, seed):
    """Slots are far apart, and many on both sides of the border of two tiles."""
    slots, border, rng = 70_000, 32_768, np.random.default_rng(seed)
    here = rng.random(slots) < density
    near = slice(border - rng.integers(1, 3000), border + rng.integers(1, 3000))
    here[near] = rng.random(len(here[near])) < tight
    pieces = []
    for wire in (Format.COO, Format.ELIAS_FANO):
        piece = Piece(slots, at.bitmap_of(np.flatnonzero(here), slots), format=WIRE_NUMBERS[wire]).ranked()
        piece.index = rubbish(index_bytes(wire, slots, piece.count) // 8 + 1)
        piece.index = cpu_index(permuting, at, piece)
        pieces.append(piece)
    status, bitmaps = decode(device, pieces, order=seed % 4)
    assert status == [0, 0]
    assert np.array_equal(bitmaps[0], pieces[0].bitmap) and np.array_equal(bitmaps[1], pieces[1].bitmap)


def cpu_verdict(kernels, at, piece) -> tuple[int, np.ndarray]:
    """Return (the status, the bitmap) of the CPU's kernel."""
    bitmap = rubbish(words_of(piece.slots))
    index, bits = at.address(piece.index), at.address(bitmap)
    status = kernels._functions["decode_index"](piece.format, index, piece.slots, piece.count, bits)
    return status, bitmap


@FUZZ
@given(data=st.data())
def test_mutated_indices_get_the_same_verdict(device, permuting, at, data):
    """Any bytes give the CPU's status, and its bitmap or, for a corrupt segment, an empty one."""
    pieces = []
    for wire in data.draw(st.lists(st.sampled_from(WIRE_FORMATS), min_size=1, max_size=4)):
        slots = data.draw(st.integers(1, 600))
        density = data.draw(st.sampled_from(DENSITIES))
        piece = drawn(at, np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))), wire, slots, density)
        raw = cpu_index(permuting, at, piece).view(np.uint8)
        piece.count = max(0, min(slots + 1, piece.count + data.draw(st.sampled_from([0, 0, 0, -1, 1]))))
        room = index_bytes(wire, slots, piece.count) if piece.count <= slots else 0
        body = np.zeros(max(room, len(raw)) + 8, np.uint8)
        body[: len(raw)] = raw
        for position, value in data.draw(st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=4)):
            body[position % max(room, 1)] = value
        piece.index = body.view(np.uint64).copy()
        pieces.append(piece)
    status, bitmaps = decode(device, pieces, order=data.draw(st.integers(0, 3)))
    for piece, mine, bitmap in zip(pieces, status, bitmaps, strict=True):
        theirs, expected = cpu_verdict(permuting, at, piece)
        assert mine == theirs, (WIRE_FORMATS[piece.format], piece.slots, piece.count)
        assert np.array_equal(bitmap, np.zeros_like(bitmap) if mine else expected)


@FUZZ
@given(slots=st.integers(1, 200), count=st.integers(0, 200), seed=st.integers(0, 2**32 - 1), wide=st.booleans())
def test_random_bytes_get_the_same_verdict(device, permuting, at, slots, count, seed, wide):
    """The high bits have the promised number of ones, so that their order is checked."""
    rng = np.random.default_rng(seed)
    count %= slots + 1
    listed = min(count, slots - count)
    others = slots - listed
    low = (others // listed).bit_length() - 1 if listed else 0
    bits = listed + (others >> low) if listed else 0
    words = rng.integers(0, 2**64, words_of(listed * low), np.uint64)
    if len(words) and listed * low % 64 and not wide:
        words[-1] &= np.uint64((1 << listed * low % 64) - 1)
    room = words_of(bits) * 64 if wide else bits
    high = np.zeros(words_of(bits) * 64, np.uint8)
    high[rng.permutation(room)[:listed]] = 1
    index = np.concatenate([words, np.packbits(high, bitorder="little").view(np.uint64), rubbish(1)])
    fano = Piece(slots, index=index, count=count, format=WIRE_NUMBERS[Format.ELIAS_FANO])
    entries = rng.integers(0, slots + wide, count, np.uint32)
    if seed % 2:
        entries.sort()
    padded = np.zeros((count + 1) // 2 * 2 + 2, np.uint32)
    padded[:count] = entries
    coo = Piece(slots, index=padded.view(np.uint64), count=count, format=WIRE_NUMBERS[Format.COO])
    status, bitmaps = decode(device, [fano, coo], order=seed % 4)
    for piece, mine, bitmap in zip([fano, coo], status, bitmaps, strict=True):
        theirs, expected = cpu_verdict(permuting, at, piece)
        assert mine == theirs
        assert np.array_equal(bitmap, np.zeros_like(bitmap) if mine else expected)


def test_a_word_of_high_bits_ends_at_a_border(device, permuting, at):
    """The last slot of a high word, number 32, is on both sides of slot 32,768, where a tile ends."""
    slots, pieces = 70_000, []
    for low in range(980, 1024):  # of 10 bits
        present = np.array([*range(32), 31 * 1024 + low + 32, *range(40_000, 47_000, 1000)])
        piece = Piece(slots, at.bitmap_of(present, slots), format=WIRE_NUMBERS[Format.ELIAS_FANO]).ranked()
        piece.index = rubbish(index_bytes(Format.ELIAS_FANO, slots, 40) // 8 + 1)
        piece.index = cpu_index(permuting, at, piece)
        assert piece.index[words_of(40 * 10)] == 1 << 63 | (1 << 32) - 1
        pieces.append(piece)
    status, bitmaps = decode(device, pieces)
    assert status == [0] * len(pieces)
    assert all(np.array_equal(bitmap, piece.bitmap) for bitmap, piece in zip(bitmaps, pieces, strict=True))


@pytest.mark.parametrize("absent", [False, True])
def test_numbers_out_of_order_are_found(device, permuting, at, absent):
    """Low bits of a number become 0: near the borders of high words, and of the first and the last."""
    rng, slots, n = np.random.default_rng(16), 6000, 1200
    listed = np.sort(rng.permutation(slots)[:n])
    present = np.setdiff1d(np.arange(slots), listed) if absent else listed
    whole = Piece(slots, at.bitmap_of(present, slots), format=WIRE_NUMBERS[Format.ELIAS_FANO]).ranked()
    whole.index = rubbish(index_bytes(Format.ELIAS_FANO, slots, whole.count) // 8 + 1)
    index, low = cpu_index(permuting, at, whole), 2
    places = (listed - np.arange(n) >> low) + np.arange(n)
    pieces = []
    for i in np.flatnonzero((places % 64 < 2) | (places % 64 > 61) | (np.arange(n) % (n - 1) == 0)):
        bits = np.unpackbits(index.view(np.uint8), bitorder="little")
        bits[i * low : (i + 1) * low] = 0
        changed = np.packbits(bits, bitorder="little").view(np.uint64)
        pieces.append(Piece(slots, index=changed, count=whole.count, format=whole.format))
    status, _ = decode(device, pieces, blocks=1)
    assert status == [cpu_verdict(permuting, at, piece)[0] for piece in pieces]
    assert 5 < status.count(-3) < len(pieces) - 5


@pytest.mark.parametrize("format", [-1, len(WIRE_FORMATS), 1 << 40])
def test_an_unknown_format_is_refused(device, permuting, at, format):
    piece = Piece(100, index=rubbish(2), count=3, format=0)
    piece.format = format
    status, bitmaps = decode(device, [piece])
    assert status == [-1] and not bitmaps[0].any()


def test_corrupt_indices_are_refused_as_on_the_cpu(device, permuting, at):
    pieces = []
    for wire, words, slots, count, _ in CORRUPT_INDICES:
        index = np.array([*words, 0, 0], np.uint64)
        pieces.append(Piece(slots, index=index, count=count % 2**64, format=WIRE_NUMBERS[wire]))
    status, bitmaps = decode(device, pieces)
    reasons = {-2: "as many slots", -3: "ascend", -4: "beyond the end", -5: "bits where"}
    for piece, mine, bitmap, (*_, why) in zip(pieces, status, bitmaps, CORRUPT_INDICES, strict=True):
        assert mine == cpu_verdict(permuting, at, piece)[0]
        assert not bitmap.any() and re.search(why, reasons[mine])
