"""The bytes of segments: written ones are read back, and nothing else is accepted."""

from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fuzz import tried
from tests.support.pieces import whole
from zenc.errors import InternalError, SynchronisationError
from zenc.runtime.cpu.channel import CallHeader, SegmentHeader, message_header, read_headers
from zenc.runtime.cpu.kernels import Expected
from zenc.scheme.model import Format
from zenc.wire.constants import WIRE_FORMATS
from zenc.wire.formats import FILLING, index_bytes, padded
from zenc.wire.structs import MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES

CORRUPT_INDICES = [
    (Format.COO, [1 | 1 << 32], 10, 2, "ascend"),
    (Format.COO, [2 | 1 << 32], 10, 2, "ascend"),
    (Format.COO, [1 | 10 << 32], 10, 2, "beyond the end"),
    (Format.COO, [1 | 9 << 32], 10, 1, "no.*bits|bits where"),
    (Format.COO, [0] * 9, 10, 11, "as many slots"),
    (Format.BITMAP, [0b111], 10, 2, "as many slots"),
    (Format.BITMAP, [1 << 10 | 1], 10, 2, "bits where"),
    (Format.DENSE, [0], 10, 9, "as many slots"),
    (Format.COO, [0], 10, -1, "as many slots"),
    (Format.ELIAS_FANO, [0b0001, 0b11], 10, 2, "ascend"),  # 2 low bits each: numbers 1 and 0, slots 1 and 1
    (Format.ELIAS_FANO, [0b0011, 0b11], 10, 2, "ascend"),  # numbers 3 and 0
    (Format.ELIAS_FANO, [0b0101, 0b1001], 10, 2, "beyond the end"),  # numbers 1 and 9, slots 1 and 10
    (Format.ELIAS_FANO, [0b1001, 0b10001], 10, 2, "bits where"),
    (Format.ELIAS_FANO, [0b10000, 0b101], 10, 2, "bits where"),
    (Format.ELIAS_FANO, [0b1001, 0b1], 10, 2, "as many slots"),
    (Format.ELIAS_FANO, [0b1001, 0b111], 10, 2, "as many slots"),
    (Format.ELIAS_FANO, [0b1001, 0b1001], 10, 8, "beyond the end"),  # absent ones
    (Format.ELIAS_FANO, [0] * 9, 10, 11, "as many slots"),
    (Format.ELIAS_FANO, [0] * 9, 10, -1, "as many slots"),
    (Format.BLOCK_4, [0b11], 10, 7, "as many slots"),
    (Format.BLOCK_4, [0b110], 10, 8, "as many slots"),  # the last block has two slots
    (Format.BLOCK_4, [0b1001], 10, 8, "bits where"),
    (Format.BLOCK_256, [0b10], 10, 10, "bits where"),
    (Format.BLOCK_256, [0b0], 10, 10, "as many slots"),
]
"""(format, words of the index, slots, promised count, a pattern that the reason has)"""


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


CALL = CallHeader(call=7, signature=0x1234567890ABCDEF, units=900)
GAP = MESSAGE_HEADER_BYTES + SEGMENT_HEADER_BYTES
SENDER, PART, ORIGIN, SLOTS, UNIT_BYTES = 3, 2, 5, 100, 6


def bitmap_of(count: int, seed: int = 0) -> np.ndarray:
    chosen = np.random.default_rng(seed).choice(SLOTS, count, replace=False)
    bits = np.zeros(128, np.uint8)
    bits[chosen] = 1
    return np.packbits(bits, bitorder="little").view(np.uint64).copy()


def sealed(kernels, at, wire: Format, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (bitmap, message) with values 1, 2, 3, ..."""
    bitmap = bitmap_of(count)
    index, value_bytes = index_bytes(wire, SLOTS, count), count * UNIT_BYTES
    message = np.full((GAP + index + padded(value_bytes)) // 8, 0xA5A5A5A5A5A5A5A5, np.uint64)
    message.view(np.uint8)[GAP + index : GAP + index + value_bytes] = np.arange(value_bytes) % 251 + 1
    what = (SLOTS, count, value_bytes, PART, ORIGIN, WIRE_FORMATS.index(wire))
    row = (at.address(message), at.address(bitmap), *what, 0)
    kernels.seal(message_header(CALL, SENDER, [], 0), [row])
    return bitmap, message


def opened(kernels, at, message: np.ndarray, head: bytes | None = None, sender: int = SENDER, part: int = PART):
    """Return (whether it was opened, what was found, the bitmap)."""
    bitmap = np.full(3, 0xA5A5A5A5A5A5A5A5, np.uint64)
    expected = Expected([(at.address(message), sender, part, SLOTS, message.nbytes)])
    head = message_header(CALL, 0, [], 0) if head is None else head
    found = kernels.open(head, expected, UNIT_BYTES, at.address(bitmap), 3)
    assert len(found) == 1 and bitmap[2] == 0
    return found[0][0] > 0, list(found[0]), bitmap[:2]


SEALED = [
    (wire, count)
    for wire in WIRE_FORMATS
    for count in (0, 1, 17, SLOTS)
    if count == SLOTS or (wire not in FILLING) or (wire.block and count == 0)
]


@pytest.mark.parametrize(("wire", "count"), SEALED)
def test_what_is_sealed_is_opened(kernels, at, wire, count):
    bitmap, message = sealed(kernels, at, wire, count)
    data = message.tobytes()
    header = SegmentHeader(PART, ORIGIN, wire, count)
    assert data[:GAP] == message_header(CALL, SENDER, [header], message.nbytes)
    assert read_headers(data[:GAP], SENDER, CALL) == (message.nbytes, 1, [header])
    start = GAP + index_bytes(wire, SLOTS, count)
    assert data[start : start + count * UNIT_BYTES] == bytes(i % 251 + 1 for i in range(count * UNIT_BYTES))
    assert not any(data[start + count * UNIT_BYTES :])
    done, found, again = opened(kernels, at, message)
    assert done and found == [message.nbytes, count, ORIGIN, WIRE_FORMATS.index(wire), start]
    assert np.array_equal(again, bitmap)


def test_what_is_not_for_this_rank_call_or_part_is_left_to_a_closer_look(kernels, at):
    _, message = sealed(kernels, at, Format.COO, 17)
    assert not opened(kernels, at, message, sender=SENDER + 1)[0]
    assert not opened(kernels, at, message, part=PART + 1)[0]
    for other in (CallHeader(8, CALL.signature, 900), CallHeader(7, 1, 900), CallHeader(7, CALL.signature, 901)):
        assert not opened(kernels, at, message, message_header(other, 0, [], 0))[0]
    assert not opened(kernels, at, message[:-1])[0]


def test_messages_of_a_step_are_sealed_and_opened_together(kernels, at):
    """A wrong message among them is left out, and spoils no other."""
    made = [sealed(kernels, at, wire, 17) for wire in (Format.COO, Format.BITMAP, Format.ELIAS_FANO)]
    made[1][1].view(np.uint8)[0] ^= 1
    bitmaps = np.zeros((3, 2), np.uint64)
    least = min(message.nbytes for _, message in made)
    expected = Expected([(at.address(message), SENDER, PART, SLOTS, least) for _, message in made])
    head = message_header(CALL, 0, [], 0)
    found = kernels.open(head, expected, UNIT_BYTES, at.address(bitmaps), 2)
    for number, (_, message) in enumerate(made):
        expected.place(number, at.address(message), message.nbytes)
    again = kernels.open(head, expected, UNIT_BYTES, at.address(bitmaps), 2)
    assert found[1] == again[1] == (0, 0, 0, 0, 0)
    assert [f[0] for f in again] == [made[0][1].nbytes, 0, made[2][1].nbytes]
    assert np.array_equal(bitmaps[0], made[0][0]) and np.array_equal(bitmaps[2], made[2][0])


def test_a_message_is_passed_on_under_a_new_header(kernels, at):
    _, message = sealed(kernels, at, Format.COO, 17)
    body = message.tobytes()[GAP:]
    row = (at.address(message), 0, SLOTS, 17, 17 * UNIT_BYTES, PART, ORIGIN, WIRE_FORMATS.index(Format.COO), 1)
    kernels.seal(message_header(CALL, SENDER + 1, [], 0), [row])
    header = SegmentHeader(PART, ORIGIN, Format.COO, 17)
    assert message.tobytes() == message_header(CALL, SENDER + 1, [header], message.nbytes) + body


@settings(max_examples=tried(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    place=st.integers(0, 400),
    flip=st.integers(1, 255),
    wire=st.sampled_from([Format.COO, Format.BITMAP, Format.ELIAS_FANO]),
)
def test_damage_is_never_opened_but_in_values_and_origin(kernels, at, place, flip, wire):
    _, message = sealed(kernels, at, wire, 17)
    place %= message.nbytes
    message.view(np.uint8)[place] ^= flip
    done, found, bitmap = opened(kernels, at, message)
    start = GAP + index_bytes(wire, SLOTS, 17)
    if not done:
        return
    in_values, in_origin = place >= start, MESSAGE_HEADER_BYTES + 5 <= place < MESSAGE_HEADER_BYTES + 8
    in_index = GAP <= place < start  # another set of as many slots
    assert in_values or in_origin or in_index
    assert found[1] == 17 and int(np.bitwise_count(bitmap).sum()) == 17


@settings(max_examples=tried(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(min_size=GAP, max_size=400))
def test_rubbish_is_never_opened(kernels, at, data):
    message = np.frombuffer(data.ljust(-(-len(data) // 8) * 8, b"\0"), np.uint64).copy()
    assert not opened(kernels, at, message)[0]
