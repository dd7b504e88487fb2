"""Messages of one segment: ``seal`` writes the run time's own headers, and ``open`` trusts nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fuzz import tried
from zenc.runtime.cpu.channel import CallHeader, SegmentHeader, message_header, read_headers
from zenc.runtime.cpu.kernels import Expected
from zenc.scheme.model import Format
from zenc.wire.constants import WIRE_FORMATS
from zenc.wire.formats import FILLING, index_bytes, padded
from zenc.wire.structs import MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES

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
