"""The meeting of ranks, and connections on which nothing valid comes, or that end in the middle of a packet."""

import errno
import logging
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from tests.support.forked import context
from tests.support.fuzz import fuzzed
from zenc.errors import SynchronisationError
from zenc.runtime.group import process_groups as meeting
from zenc.runtime.transports.connections import listening
from zenc.runtime.transports.gloo_transport import GlooGroup, GlooTransport
from zenc.runtime.transports.socket_transport import SocketTransport, hub_functions, room_of_machine

SIZE = 3


def name_of(file: int) -> tuple[str, int]:
    with socket.socket(fileno=os.dup(file)) as at:
        host, port = at.getsockname()[:2]
        return host, port


class Strangers:
    """Strangers who say 8 bytes to so ``many`` ports, as soon as a rank has told others of its own.

    Gloo takes them for the number of a connection that it waits for.
    """

    def __init__(self, many: int) -> None:
        self.many, self.lock = many, threading.Lock()
        self.known = {name_of(file) for file in listening()}
        self.here: list[socket.socket] = []

    def come(self) -> None:
        with self.lock:
            for name in {name_of(file) for file in listening()} - self.known:
                self.known.add(name)
                for number in range(SIZE if self.many else 0):
                    self.here.append(socket.create_connection(name))
                    self.here[-1].sendall(struct.pack("<Q", number))
                self.many = max(0, self.many - 1)


class WatchedStore(dist.Store):
    """A store that tells strangers when a rank listens."""

    def __init__(self, real: dist.Store, strangers: Strangers) -> None:
        super().__init__()
        self.real, self.strangers = real, strangers

    def set(self, key: str, value: Any) -> None:
        if "made/" in key:
            self.strangers.come()
        self.real.set(key, value)

    def get(self, key: str) -> bytes:
        return self.real.get(key)

    def wait(self, keys: list[str], timeout: timedelta = timedelta(seconds=60)) -> None:
        self.real.wait(keys, timeout)


def met(many: int, deadline: float) -> list[Any]:
    """Return a group of each rank, or its error, where strangers disturb ``many`` ports."""
    real, strangers = dist.HashStore(), Strangers(many)

    def of(rank: int) -> Any:
        try:
            return meeting.meet(WatchedStore(real, strangers), rank, SIZE, deadline)
        except SynchronisationError as error:
            return error

    with ThreadPoolExecutor(SIZE) as pool:
        return list(pool.map(of, range(SIZE)))


def summed(group: Any) -> list[float]:
    ones = torch.ones(2)
    group.allreduce([ones]).wait()
    return ones.tolist()


@pytest.mark.parametrize("many", [0, 2, 3])  # of three ranks one waits for nobody, whom a stranger disturbs in vain
def test_a_meeting_that_was_disturbed_is_made_again(many: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="zenc"):
        groups = met(many, 15.0)
    with ThreadPoolExecutor(SIZE) as pool:
        assert list(pool.map(summed, groups)) == [[3.0, 3.0]] * SIZE
    assert many or not caplog.records, "nothing had happened"
    assert not many or "disturbed, and are made again" in caplog.text


def test_a_meeting_that_is_disturbed_for_good_says_so_within_its_deadline() -> None:
    started = time.monotonic()
    errors = met(1000, 3.0)
    assert time.monotonic() - started < 15
    for error in errors:
        assert error.diagnostics[0].id == "deadline"
        assert "disturbed" in error.diagnostics[0].message
        assert "rank " in error.diagnostics[0].notes[0]


def test_too_few_files_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rank names the lack of files, whichever has too few."""
    real = dist.ProcessGroupGloo

    def made(store: Any, rank: int, *given: Any) -> Any:
        if rank == 1:
            raise RuntimeError(f"[socket.cpp] socket: {os.strerror(errno.EMFILE)}")
        return real(store, rank, *given)

    monkeypatch.setattr(meeting, "_is_settable", lambda: True)
    monkeypatch.setattr(meeting.dist, "ProcessGroupGloo", made)
    for error in met(0, 3.0):
        assert error.diagnostics[0].id == "too-few-connections"
        assert error.diagnostics[0].message.startswith("rank 1 can't open")


BYTES, TAG = 256 << 20, 7
"""A message longer than a connection buffers, and its tag."""
DEADLINE = 60.0


def transport_of(rank: int, port: int) -> GlooTransport:
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    group: Any = dist.ProcessGroupGloo(store, rank, 2, timedelta(seconds=DEADLINE))
    return GlooTransport(cast(GlooGroup, group))


def peer(port: int, sends: bool) -> None:
    """Act as rank 1, which sends, or is ready to receive and then stops without reading."""
    transport, buffer = transport_of(1, port), torch.ones(BYTES, dtype=torch.uint8)
    if sends:
        transport.send(0, TAG, buffer).wait(DEADLINE)
    else:
        pending = transport.receive(0, TAG, buffer)
        os.kill(os.getpid(), signal.SIGSTOP)
        pending.wait(DEADLINE)


@contextmanager
def with_peer(sends: bool) -> Iterator[tuple[GlooTransport, BaseProcess]]:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    process = context().Process(target=peer, args=(store.port, sends), daemon=True)
    process.start()
    transport = transport_of(0, store.port)
    try:
        yield transport, process
    finally:
        process.kill()
        process.join()
        transport.close()


def is_stopped(process: BaseProcess) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("sends", [False, True], ids=["partly-sent", "partly-received"])
def test_the_end_of_a_connection_is_learnt_of_before_the_deadline(sends: bool) -> None:
    with with_peer(sends) as (transport, process):
        buffer = torch.zeros(BYTES, dtype=torch.uint8)
        while not sends and not is_stopped(process):
            time.sleep(0.01)
        pending = (transport.receive if sends else transport.send)(1, TAG, buffer)
        while sends and not buffer[0]:
            time.sleep(0.001)
        process.kill()
        began = time.monotonic()
        with pytest.raises(RuntimeError):
            pending.wait(DEADLINE)
        assert time.monotonic() - began < DEADLINE / 4


def test_who_waits_learns_that_this_rank_gives_up() -> None:
    with with_peer(sends=False) as (transport, process):
        while not is_stopped(process):
            time.sleep(0.01)
        pending = transport.send(1, TAG, torch.zeros(BYTES, dtype=torch.uint8))
        transport.close()
        with pytest.raises(RuntimeError, match="the transport is closed"):
            pending.wait(DEADLINE)


NOTHING = torch.empty(0, dtype=torch.uint8)
FRAME = struct.Struct("<IIQ")
MARK, FRAME_TAG, BODY = 0x466E657A, 1, b"what a rank says"
GOOD = FRAME.pack(MARK, FRAME_TAG, len(BODY)) + BODY
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
            came = pool.submit(transport.receive(1, FRAME_TAG, NOTHING).wait, SHORT).result(SOON)
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
            yield FRAME.pack(MARK, FRAME_TAG, length + near)
    for length in range(64):
        yield FRAME.pack(MARK, FRAME_TAG, (1 << 64) - 1 - length)


def test_a_header_of_which_anything_is_damaged_is_an_error_in_time() -> None:
    started, tried = time.monotonic(), 0
    for header in headers():
        found, length = outcome(header + BODY), FRAME.unpack(header)[2]
        mark, tag, _ = FRAME.unpack(header)
        tried += 1
        if mark != MARK or length > MEMORY:
            assert "given up" in found, header
        elif tag != FRAME_TAG or length > len(BODY):
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
