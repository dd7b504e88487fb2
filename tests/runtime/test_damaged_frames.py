"""Connections that deliver no valid frame: an error, and no wait beyond the deadline."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fuzz import fuzzed
from zenc.runtime.transports.socket_transport import SocketTransport, hub_functions, room_of_machine

NOTHING = torch.empty(0, dtype=torch.uint8)
FRAME = struct.Struct("<IIQ")
MARK, TAG, BODY = 0x466E657A, 1, b"what a rank says"
GOOD = FRAME.pack(MARK, TAG, len(BODY)) + BODY
SHORT, SOON = 0.06, 5.0
"""Seconds of a wait; and seconds within which everything ends on a busy machine."""
MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
LENGTHS = sorted({1 << bits for bits in range(4, 64)} | {MEMORY + one for one in (-64, -1, 0, 1)})


def end() -> tuple[socket.socket, SocketTransport]:
    theirs, own = socket.socketpair()
    return theirs, SocketTransport(hub_functions(), room_of_machine(), 0, [-1, own.detach()])


def outcome(stream: bytes) -> str:
    """Return the result of a wait for a message of a stream, within its time; closing ends within its own."""
    theirs, transport = end()
    theirs.sendall(stream)
    with ThreadPoolExecutor(1) as pool:
        try:
            came = pool.submit(transport.receive(1, TAG, NOTHING).wait, SHORT).result(SOON)
            found = bytes(came.numpy()).decode("latin-1")
        except RuntimeError as error:
            found = str(error)
        pool.submit(transport.close).result(SOON)
    theirs.close()
    return found


def headers() -> Iterator[bytes]:
    """Draw headers with one changed byte, or with an extreme length."""
    for at in range(FRAME.size):
        for flipped in (0x01, 0x80, 0xFF):
            yield GOOD[:at] + bytes([GOOD[at] ^ flipped]) + GOOD[at + 1 : FRAME.size]
    for length in LENGTHS:
        for near in (-1, 0, 5):
            yield FRAME.pack(MARK, TAG, length + near)
    for length in range(64):
        yield FRAME.pack(MARK, TAG, (1 << 64) - 1 - length)


def test_a_header_of_which_anything_is_damaged_is_an_error_in_time() -> None:
    started, tried = time.monotonic(), 0
    for header in headers():
        found, length = outcome(header + BODY), FRAME.unpack(header)[2]
        mark, tag, _ = FRAME.unpack(header)
        tried += 1
        if mark != MARK or length > MEMORY:
            assert "given up" in found, header
        elif tag != TAG or length > len(BODY):
            assert "within" in found or "given up" in found, header
        else:
            assert found == BODY[:length].decode(), header
    assert tried > 200 and time.monotonic() - started < 90


@fuzzed(60)
@given(st.lists(st.tuples(st.integers(0, 5 * len(GOOD) - 1), st.integers(0, 255)), max_size=6), st.integers(0, 40))
def test_any_bytes_end_in_a_message_or_an_error(changes: list[tuple[int, int]], cut: int) -> None:
    stream = bytearray(GOOD * 5)
    for at, value in changes:
        stream[at] = value
    found = outcome(bytes(stream[: len(stream) - cut]))
    assert found or 0 in FRAME.unpack_from(stream)


def memory() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def one_frame(theirs: socket.socket) -> None:
    theirs.sendall(FRAME.pack(MARK, 7, 3_000_000_000))
    for _ in range(300):
        theirs.sendall(bytes(1 << 20))


def empty_frames(theirs: socket.socket) -> None:
    for first in range(0, 300_000, 1000):
        theirs.sendall(b"".join(FRAME.pack(MARK, 1000 + first + tag, 0) for tag in range(1000)))


@pytest.mark.parametrize("send", [one_frame, empty_frames])
@pytest.mark.parametrize("waits", [False, True])
def test_what_nobody_waits_for_takes_little_memory(send: object, waits: bool) -> None:
    """Memory stays small also while another message of the same peer is awaited."""
    theirs, transport = end()
    before, asked = memory(), 0 if waits else 1

    def sends() -> None:
        with suppress(OSError):
            send(theirs)  # type: ignore[operator]

    sending = threading.Thread(target=sends)
    sending.start()
    for _ in range(20):
        with pytest.raises(RuntimeError, match="within"):
            transport.receive(1, asked, NOTHING).wait(0.1 if waits else 0.001)
        sending.join(0.05)
    assert sending.is_alive(), "it is held up"
    assert memory() - before < 128 << 20
    theirs.shutdown(socket.SHUT_RDWR)
    with pytest.raises(RuntimeError, match="given up"):
        transport.receive(1, asked, NOTHING).wait(SOON)
    transport.close()
    sending.join(SOON)
    assert not sending.is_alive()
