"""The bytes of segments: written ones are read back, and nothing else is accepted."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.corrupt import CORRUPT_INDICES
from tests.support.fuzz import tried
from tests.support.pieces import whole
from zenc.errors import InternalError, SynchronisationError
from zenc.scheme.model import Format
from zenc.wire.constants import WIRE_FORMATS
from zenc.wire.formats import index_bytes, padded

FORMATS = [format for format in WIRE_FORMATS if format.block in (0, 2, 8, 64, 256)]
COUNTED = [Format.COO, Format.ELIAS_FANO, Format.BLOCK_8]
"""Formats whose encoder visits every slot, and so finds a wrong count."""


def encode(kernels, at, wire, bitmap, slots, count, values):
    size = index_bytes(wire, slots, count) + padded(len(values))
    out = np.full(size // 8 + 1, 0xA5A5A5A5A5A5A5A5, np.uint64)
    payload = np.frombuffer(values, np.uint8)
    written = kernels.encode(wire, at.address(bitmap), slots, count, payload.ctypes.data, len(values), at.address(out))
    assert written == size
    assert out[-1] == 0xA5A5A5A5A5A5A5A5
    index = np.full(index_bytes(wire, slots, count) // 8 + 1, 0xA5A5A5A5A5A5A5A5, np.uint64)
    written = kernels.encode_index(wire, at.address(bitmap), slots, count, at.address(index))
    assert written == index_bytes(wire, slots, count)
    assert index[-1] == 0xA5A5A5A5A5A5A5A5
    assert np.array_equal(index[:-1], out[: len(index) - 1])
    return out[:-1]


def decode(kernels, at, wire, body, slots, count):
    bitmap = np.full(-(-slots // 64), 0xA5A5A5A5A5A5A5A5, np.uint64)
    kernels.decode_index(wire, at.address(body), slots, count, at.address(bitmap))
    return bitmap


@pytest.mark.parametrize("width", [0, 1, 5])
@pytest.mark.parametrize("wire", FORMATS)
def test_what_is_written_is_read_back(permuting, at, wire, width):
    rng = np.random.default_rng(9)
    for slots, density in product((0, 1, 63, 64, 65, 1000), (0.0, 0.01, 0.3, 0.5, 0.97, 1.0)):
        present = whole(wire, rng.permutation(slots)[: round(slots * density)], slots)
        count, case = len(present), (slots, density)
        values = rng.bytes(count * width)
        bitmap = at.bitmap_of(present, slots)
        body = encode(permuting, at, wire, bitmap, slots, count, values)
        assert np.array_equal(decode(permuting, at, wire, body, slots, count), bitmap), case
        start = index_bytes(wire, slots, count)
        assert body.tobytes()[start : start + len(values)] == values, case
        assert not any(body.tobytes()[start + len(values) :]), case
        if wire is Format.COO:
            assert np.array_equal(body.view(np.uint32)[:count], present), case


def elias_fano(slots: int, present: set[int]) -> list[int]:
    """Return the words of the index, bit by bit, as the grammar in zenc/wire/formats.py says."""
    absent = set(range(slots)) - present
    listed = sorted(absent if len(present) > len(absent) else present)
    if not listed:
        return []
    low, others = 0, slots - len(listed)
    while len(listed) << low + 1 <= others:
        low += 1
    numbers = [slot - i for i, slot in enumerate(listed)]
    lows = sum((number & (1 << low) - 1) << i * low for i, number in enumerate(numbers))
    highs = sum(1 << (number >> low) + i for i, number in enumerate(numbers))
    sizes = (len(listed) * low, len(listed) + (others >> low))
    return [
        stream >> 64 * w & (1 << 64) - 1
        for stream, bits in zip((lows, highs), sizes, strict=True)
        for w in range(-(-bits // 64))
    ]


@settings(max_examples=tried(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(slots=st.integers(0, 700), share=st.floats(0, 1), seed=st.integers(0, 2**32 - 1))
def test_elias_fano_is_written_as_its_grammar_says(permuting, at, slots, share, seed):
    present = np.flatnonzero(np.random.default_rng(seed).random(slots) < share)
    body = encode(permuting, at, Format.ELIAS_FANO, at.bitmap_of(present, slots), slots, len(present), b"")
    assert body.tolist() == elias_fano(slots, set(present.tolist()))


@pytest.mark.parametrize("count", [0, 1, 2, 1_000, 40_000, 500_000, 999_999, 1_000_000])
def test_elias_fano_of_a_million_slots(permuting, at, count):
    slots, present = 1_000_000, np.random.default_rng(4).permutation(1_000_000)[:count]
    bitmap = at.bitmap_of(present, slots)
    body = encode(permuting, at, Format.ELIAS_FANO, bitmap, slots, count, b"")
    assert np.array_equal(decode(permuting, at, Format.ELIAS_FANO, body, slots, count), bitmap)


@settings(max_examples=tried(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    slots=st.integers(1, 1500),
    share=st.floats(0, 1),
    wire=st.sampled_from([format for format in WIRE_FORMATS if format.block]),
    width=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_blocks_are_filled_up_with_zeros(permuting, at, slots, share, wire, width, seed):
    present = np.flatnonzero(np.random.default_rng(seed).random(slots) < share**3)
    bitmap, filled = at.bitmap_of(present, slots), np.full(-(-slots // 64), 0xA5A5A5A5A5A5A5A5, np.uint64)
    count = permuting.fill_blocks(at.address(bitmap), slots, wire.block, at.address(filled))
    expected = whole(wire, present, slots)
    assert count == len(expected) and np.array_equal(at.occupied(filled), expected)
    values = np.arange(1, len(present) * width + 1, dtype=np.float32).reshape(-1, width)
    out = np.full((count + 1, width), 7, np.float32)
    where = at.address(bitmap), at.address(filled)
    permuting.spread("f32", *where, slots, width, at.address(values), at.address(out))
    dense = np.zeros((slots, width), np.float32)
    dense[present] = values
    assert np.array_equal(out[:-1], dense[expected]) and (out[-1] == 7).all()
    blocks = encode(permuting, at, wire, filled, slots, count, b"")
    assert np.array_equal(np.flatnonzero(np.unpackbits(blocks.view(np.uint8), bitorder="little")),
                          np.unique(present // wire.block))  # fmt: skip


def test_blocks_that_are_not_whole_are_not_sent(permuting, at):
    for present, claimed in (([0, 1, 2], 3), ([0, 1, 2], 4), ([8, 9], 4), ([0, 1, 2, 3, 9], 6)):
        with pytest.raises(InternalError):
            encode(permuting, at, Format.BLOCK_4, at.bitmap_of(present, 10), 10, claimed, b"")


def test_dense_needs_every_slot(permuting, at):
    with pytest.raises(InternalError):
        encode(permuting, at, Format.DENSE, at.bitmap_of([0, 1], 3), 3, 2, b"")


@pytest.mark.parametrize("wire", COUNTED)
@pytest.mark.parametrize("claimed", [2, 4])
def test_a_count_that_is_not_the_bitmaps_is_refused(permuting, at, wire, claimed):
    bitmap, out = at.bitmap_of([1, 5, 70], 100), np.zeros(8, np.uint64)
    with pytest.raises(InternalError):
        permuting.encode(wire, at.address(bitmap), 100, claimed, 0, 0, at.address(out))


@pytest.mark.parametrize("wire, words, slots, count, why", CORRUPT_INDICES)
def test_corrupt_indices_are_refused_with_the_reason(permuting, at, wire, words, slots, count, why):
    with pytest.raises(SynchronisationError, match=why) as raised:
        decode(permuting, at, wire, np.array(words, np.uint64), slots, count)
    assert raised.value.diagnostics[0].id == "corrupt-segment"


@settings(max_examples=tried(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_indices_never_give_a_wrong_count(permuting, at, data):
    wire = data.draw(st.sampled_from(FORMATS))
    slots = data.draw(st.integers(1, 300))
    present = whole(wire, np.array(sorted(data.draw(st.sets(st.integers(0, slots - 1)))), np.int64), slots)
    count, bitmap = len(present), at.bitmap_of(present, slots)
    body = encode(permuting, at, wire, bitmap, slots, count, b"")
    raw = bytearray(body.tobytes())
    for position, value in data.draw(st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=4)):
        if raw:
            raw[position % len(raw)] = value
    claimed = max(0, min(slots, count + data.draw(st.integers(-1, 1))))
    raw += bytes(
        max(index_bytes(wire, slots, claimed) - len(raw), 0) + 16 - len(raw) % 8
    )  # the receiver's buffer is as long as the claimed count says
    damaged = np.frombuffer(bytes(raw[: len(raw) // 8 * 8]), np.uint64).copy()
    try:
        bitmap = decode(permuting, at, wire, damaged, slots, claimed)
    except SynchronisationError:
        return
    found = at.occupied(bitmap)
    assert len(found) == claimed
    assert not len(found) or found[-1] < slots
