"""The executor of CPUs: headers are read as written, resources held after a program, and rests of long messages."""

import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import zenc
from tests.support import local
from tests.support.cases import dense_tensor, same_bits, sparse_tensor
from tests.support.fuzz import tried
from tests.support.local import collectives, run_all
from tests.support.refusals import refusals
from zenc.api import compile, compile_text
from zenc.errors import SynchronisationError
from zenc.runtime.cpu.channel import CallHeader, SegmentHeader, message_header, read_headers
from zenc.runtime.cpu.executor import CpuCall
from zenc.runtime.cpu.holder_interpreter import HolderInterpreter
from zenc.wire.constants import WIRE_FORMATS
from zenc.wire.structs import MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES

SCHEMES = [("balanced", 3), ("dense_ring", 4), ("sparcml", 4), ("zen_cluster", 8), ("holders", 3)]


@pytest.mark.parametrize(("name", "size"), SCHEMES)
@pytest.mark.parametrize("make", [sparse_tensor, dense_tensor])
def test_only_the_result_is_held_in_the_end(name, size, make, monkeypatch):
    held = []
    result = CpuCall._result

    def watched(self: CpuCall, *of_call: object) -> torch.Tensor:
        of, expand = self.interpreter, self.script.program.expand
        sets = of.sets.held if isinstance(of, HolderInterpreter) else {}
        held.append((set(of.held) == set(expand.segments), set(sets) == set(expand.sets)))
        return result(self, *of_call)

    monkeypatch.setattr(CpuCall, "_result", watched)
    ranks = collectives(zenc.compile(name, ranks=size), size)
    run_all(ranks, [make("random", rank, size, 200, 2, torch.float32, 1) for rank in range(size)])
    assert held == [(True, True)] * size


@pytest.mark.parametrize("units", [40_000, 65_536, 100_000])
def test_the_fullest_message_that_there_can_be_is_taken(units):
    text = """scheme f { communication: point_to_point aggregation: incremental partition: parallelism
               balance: imbalanced push: coo pull: coo }"""
    full = torch.arange(1.0, units + 1)
    for sum in run_all(collectives(compile_text(text, ranks=2), 2), [full.to_sparse() for _ in range(2)]):
        assert torch.equal(sum.to_dense(), 2 * full)


@pytest.mark.parametrize("name", ["balanced", "sparcml", "dense_ring", "holders", "zen"])
def test_rests_are_sent_when_all_first_packets_of_the_step_are_in(name, monkeypatch):
    """A step sends its first packets, awaits the peers', posts receives of the rests, and only then sends rests."""
    size, events = 4, {rank: [] for rank in range(4)}
    send, receive = local.LocalTransport.send, local.LocalTransport.receive

    def sent(self, peer, tag, buffer):
        events[self.rank].append(("sends rest" if tag & 1 else "sends first", tag >> 1))
        return send(self, peer, tag, buffer)

    def received(self, peer, tag, buffer):
        if tag & 1:
            events[self.rank].append(("is ready for rest", tag >> 1))
        return receive(self, peer, tag, buffer)

    monkeypatch.setattr(local.LocalTransport, "send", sent)
    monkeypatch.setattr(local.LocalTransport, "receive", received)
    inputs = [sparse_tensor("random", rank, size, 200_000, 2, torch.float32, 1) for rank in range(size)]
    artifact = compile(name, ranks=size)
    assert same_bits(run_all(collectives(artifact, size), inputs))
    order = ("sends first", "is ready for rest", "sends rest")
    for of_rank in events.values():
        steps = {}
        for what, step in of_rank:
            steps.setdefault(step, []).append(order.index(what))
        assert any(2 in of_step for of_step in steps.values()), "nothing was long"
        assert all(of_step == sorted(of_step) for of_step in steps.values()), steps


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
    return refusals(SynchronisationError, read_headers, data, 3, MINE)[0].id


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
