"""Headers are read as they were written; bytes that are no header give a SynchronisationError and nothing else."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz import tried
from zenc.errors import SynchronisationError
from zenc.runtime.cpu.channel import CallHeader, SegmentHeader, message_header, read_headers
from zenc.wire.constants import WIRE_FORMATS
from zenc.wire.structs import MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES

WORD = st.integers(0, 2**64 - 1)
ENVELOPES = st.builds(CallHeader, WORD, WORD, WORD)
SEGMENTS = st.lists(
    st.builds(SegmentHeader, st.integers(0, 2**32 - 1), st.integers(0, 2**24 - 1), st.sampled_from(WIRE_FORMATS), WORD),
    max_size=5,
)
MINE = CallHeader(7, 0x1234, 1000)
HEAD = message_header(MINE, 3, [SegmentHeader(2, 3, WIRE_FORMATS[1], 5)], 104)


@given(envelope=ENVELOPES, segments=SEGMENTS, sender=st.integers(0, 2**32 - 1), body=st.integers(0, 2**40))
def test_headers_come_back(envelope, segments, sender, body):
    total = MESSAGE_HEADER_BYTES + SEGMENT_HEADER_BYTES * len(segments) + body
    head = message_header(envelope, sender, segments, total)
    assert len(head) == MESSAGE_HEADER_BYTES + SEGMENT_HEADER_BYTES * len(segments)
    assert read_headers(head, sender, envelope) == (total, len(segments), segments)


def test_the_layout_of_the_bytes():
    head = message_header(CallHeader(1, 2, 3), 4, [SegmentHeader(5, 6, WIRE_FORMATS[2], 7)], 99)
    assert head == struct.pack("<4sHHIIQQQQ", b"zenM", 3, 0, 1, 4, 99, 1, 2, 3) + struct.pack("<IIQ", 5, 6 << 8 | 2, 7)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (CallHeader(7, 0x1234, 1001), "its tensor has 1,001 units, and this rank's has 1,000"),
        (CallHeader(7, 0x1235, 1000), "its tensor, name, dtype, operation or scheme differs"),
        (CallHeader(9, 0x1234, 1000), "it is in call 9 of this group, and this rank in call 7"),
        (CallHeader(8, 0x1235, 1001), "units"),
    ],
)
def test_another_call_is_told_from_damage(other, words):
    with pytest.raises(SynchronisationError, match="different-calls") as caught:
        read_headers(message_header(other, 3, [], 48), 3, MINE)
    assert words in str(caught.value) and "rank 3" in str(caught.value)


def damage(data: bytes) -> str:
    with pytest.raises(SynchronisationError) as caught:
        read_headers(data, 3, MINE)
    return caught.value.diagnostics[0].id


def test_segments_beyond_the_first_look():
    """The caller looks again for segments that are not there yet."""
    for length in range(MESSAGE_HEADER_BYTES, len(HEAD)):
        assert read_headers(HEAD[:length], 3, MINE) == (104, 1, [])


DAMAGED = {
    "cut short": [HEAD[:0], HEAD[:1], HEAD[:47]],
    "no known format": [HEAD[:52] + b"\x20" + HEAD[53:]],
    "another rank, version or kind": [
        b"MPI!" + HEAD[4:], HEAD[:4] + b"\x01\x00" + HEAD[6:], HEAD[:6] + b"\x01\x00" + HEAD[8:],
        message_header(MINE, 2, [], 48), bytes(48),
    ],
    "more segments than bytes": [message_header(MINE, 3, [SegmentHeader(0, 3, WIRE_FORMATS[0], 0)], 63)],
}  # fmt: skip


@pytest.mark.one_in(1)
@pytest.mark.parametrize("what", DAMAGED)
def test_headers_that_are_damaged(what):
    assert {damage(data) for data in DAMAGED[what]} == {"corrupt-message"}


@settings(max_examples=tried(300))
@given(st.binary(max_size=100))
def test_rubbish(data):
    assert damage(data) == "corrupt-message"


@settings(max_examples=tried(300))
@given(st.integers(0, MESSAGE_HEADER_BYTES - 1), st.integers(1, 255))
def test_every_byte_counts(place, flip):
    """A changed byte of the message header is found, but in two numbers, which are held against the segments."""
    data = bytearray(HEAD)
    data[place] ^= flip
    try:
        total, segments, _ = read_headers(bytes(data), 3, MINE)
    except SynchronisationError:
        return
    assert 8 <= place < 12 or 16 <= place < 24
    assert (segments, total) != (1, 104)
