"""The NCCL whose ranks share a GPU: its messages, its order, its errors; on the emulator's driver."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np
import pytest

from tests.emulator.libraries import UINT8, Config, Libraries, UniqueId
from tests.gpu.machine import emulated_gpu

INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR = 4, 5, 6
UINT64, MAX = 5, 2
BYTES, MUCH = 1000, 1 << 26
UNSET = -1 << 31
SOON = 10.0
"""Seconds within which a call that does not block is done."""


class Pair:
    """Two ranks, of a thread each: they have a stream and memory for three messages."""

    def __init__(self) -> None:
        machine = emulated_gpu()
        self.cuda, self.nccl = Libraries(machine.cuda), ctypes.CDLL(machine.nccl)
        self.cuda.make_current(0)
        assert self.nccl.ncclGetVersion(ctypes.byref(ctypes.c_int())) == 0
        self.name = UniqueId()
        self.nccl.ncclGetUniqueId(ctypes.byref(self.name))
        self.streams = [self.cuda.new("cuStreamCreate", 1) for _ in range(2)]
        self.memory = [self.cuda.new("cuMemAlloc_v2", 3 * BYTES) for _ in range(2)]
        self.much = self.cuda.new("cuMemAlloc_v2", MUCH)
        self.threads = [ThreadPoolExecutor(1, initializer=lambda: self.cuda.make_current(0)) for _ in range(2)]
        self.ranks = [done.result(SOON) for done in [self.threads[rank].submit(self.joined, rank) for rank in (0, 1)]]

    def joined(self, rank: int, blocking: int = UNSET) -> ctypes.c_void_p:
        made, config = ctypes.c_void_p(), Config(ctypes.sizeof(Config), 0xCAFEBEEF, 22800, blocking)
        code = self.nccl.ncclCommInitRankConfig(ctypes.byref(made), 2, self.name, rank, ctypes.byref(config))
        assert code == (0 if blocking else INVALID_USAGE)
        return made

    def post(self, rank: int, *messages: tuple[str, int, int]) -> Future[int]:
        """Post a group of (function, number of the message, bytes), on the thread of the rank."""
        return self.threads[rank].submit(self._posted, rank, *messages)

    def _posted(self, rank: int, *messages: tuple[str, int, int]) -> int:
        assert self.nccl.ncclGroupStart() == 0
        results = [
            getattr(self.nccl, name)(
                ctypes.c_uint64(self.memory[rank] + number * BYTES), ctypes.c_size_t(size), UINT8, 1 - rank,
                self.ranks[rank], ctypes.c_uint64(self.streams[rank]),
            )
            for name, number, size in messages
        ]  # fmt: skip
        return max(*results, self.nccl.ncclGroupEnd())

    def both(self, first: Future[int], second: Future[int]) -> tuple[int, int]:
        """Return how the groups of both ranks end."""
        return first.result(SOON), second.result(SOON)

    def reduce(self, rank: int, words: int = BYTES // 8 // 2) -> Future[int]:
        """Reduce message 0 by maximum into message 1, on the thread of the rank."""
        return self.threads[rank].submit(self._reduced, rank, words)

    def _reduced(self, rank: int, words: int) -> int:
        first, second = (ctypes.c_uint64(self.memory[rank] + number * BYTES) for number in (0, 1))
        stream = ctypes.c_uint64(self.streams[rank])
        return self.nccl.ncclAllReduce(first, second, ctypes.c_size_t(words), UINT64, MAX, self.ranks[rank], stream)

    def fill(self, rank: int, number: int, value: int) -> None:
        where = self.memory[rank] + number * BYTES
        self.cuda.call("cuMemsetD8Async", where, value, BYTES, self.streams[rank])

    def be_busy(self, rank: int) -> None:
        """Keep the stream of the rank busy for some tenths of a second."""
        for _ in range(8):
            self.cuda.call("cuMemsetD8Async", self.much, 0, MUCH, self.streams[rank])

    def read(self, rank: int, number: int) -> set[int]:
        out = np.zeros(BYTES, np.uint8)
        self.cuda.copy(out.ctypes.data, self.memory[rank] + number * BYTES, BYTES, self.streams[rank])
        return set(out.tolist())

    def state(self, rank: int) -> int:
        out = ctypes.c_int()
        assert self.nccl.ncclCommGetAsyncError(self.ranks[rank], ctypes.byref(out)) == 0
        return out.value

    def close(self) -> None:
        for thread in self.threads:
            thread.shutdown()
        for rank in self.ranks:
            self.nccl.ncclCommDestroy(rank)
        for stream in self.streams:
            self.cuda.call("cuStreamDestroy_v2", stream)
        for memory in (*self.memory, self.much):
            self.cuda.call("cuMemFree_v2", memory)


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def test_a_group_blocks_until_the_other_side_has_come(pair):
    pair.fill(0, 0, 7)
    sent = pair.post(0, ("ncclSend", 0, BYTES))
    assert wait([sent], 0.05).not_done
    assert pair.both(sent, pair.post(1, ("ncclRecv", 1, BYTES))) == (0, 0)
    assert pair.read(1, 1) == {7}


def test_a_circle_in_one_group(pair):
    pair.fill(0, 0, 1), pair.fill(1, 0, 2)
    circle = (("ncclSend", 0, BYTES), ("ncclRecv", 1, BYTES))
    assert pair.both(pair.post(0, *circle), pair.post(1, *circle)) == (0, 0)
    assert (pair.read(0, 1), pair.read(1, 1)) == ({2}, {1})


def test_messages_meet_in_their_order(pair):
    pair.fill(0, 0, 1), pair.fill(0, 1, 2)
    sent = pair.post(0, ("ncclSend", 0, BYTES), ("ncclSend", 1, BYTES))
    assert pair.both(sent, pair.post(1, ("ncclRecv", 2, BYTES), ("ncclRecv", 0, BYTES))) == (0, 0)
    assert (pair.read(1, 2), pair.read(1, 0)) == ({1}, {2})


@pytest.mark.parametrize("slow", [0, 1])
def test_what_is_on_the_streams_keeps_its_order(pair, slow):
    """A late sender is waited for, and a sender does not overwrite data that a late receiver still needs."""
    pair.be_busy(slow)
    pair.fill(0, 0, 3)
    pair.both(pair.post(0, ("ncclSend", 0, BYTES)), pair.post(1, ("ncclRecv", 1, BYTES)))
    pair.fill(0, 0, 9)
    assert (pair.read(1, 1), pair.read(0, 0)) == ({3}, {9})


@pytest.mark.parametrize("slow", [0, 1])
def test_all_get_the_greatest_words(pair, slow):
    pair.be_busy(slow)
    pair.fill(0, 0, 3), pair.fill(1, 0, 5), pair.fill(0, 1, 0), pair.fill(1, 1, 0)
    first = pair.reduce(0)
    assert wait([first], 0.05).not_done
    assert pair.both(first, pair.reduce(1)) == (0, 0)
    assert (pair.read(0, 1), pair.read(1, 1)) == ({0, 5}, {0, 5})
    assert (pair.read(0, 0), pair.read(1, 0)) == ({3}, {5})
    pair.fill(0, 0, 9)
    assert pair.both(pair.reduce(1), pair.reduce(0)) == (0, 0)
    assert (pair.read(0, 1), pair.read(1, 1)) == ({0, 9}, {0, 9})


def test_an_all_reduce_of_other_lengths_fails(pair):
    assert pair.both(pair.reduce(0, 1), pair.reduce(1, 2)) == (INVALID_ARGUMENT, INVALID_ARGUMENT)


def test_an_all_reduce_without_all_ranks_fails(pair):
    first = pair.reduce(0)
    wait([first], 0.05)
    pair.nccl.ncclCommAbort(pair.ranks.pop())
    assert first.result(SOON) == REMOTE_ERROR == pair.state(0)


def test_other_lengths_are_an_error_on_both_sides(pair):
    sent = pair.post(0, ("ncclSend", 0, BYTES))
    assert pair.both(sent, pair.post(1, ("ncclRecv", 0, BYTES - 1))) == (INVALID_ARGUMENT, INVALID_ARGUMENT)


@pytest.mark.parametrize("who", [0, 1])
def test_an_abort_ends_what_blocks(pair, who):
    """The peer aborts, or another thread of the rank, which takes its communicator away."""
    received = pair.post(0, ("ncclRecv", 0, BYTES))
    wait([received], 0.05)
    pair.nccl.ncclCommAbort(pair.ranks.pop(who))
    assert received.result(SOON) == REMOTE_ERROR
    if who:
        assert pair.post(0, ("ncclSend", 0, BYTES)).result(SOON) == INVALID_USAGE


def test_wrong_use_is_refused(pair):
    where, size = ctypes.c_uint64(pair.memory[0]), ctypes.c_size_t(1)
    for function, type, peer, code in (("ncclSend", UINT8, 1, INVALID_USAGE), ("ncclRecv", 4, 1, INVALID_ARGUMENT)):
        stream = ctypes.c_uint64(pair.streams[0])
        assert getattr(pair.nccl, function)(where, size, type, peer, pair.ranks[0], stream) == code
    assert pair.nccl.ncclGroupEnd() == INVALID_USAGE
    pair.joined(1, blocking=0)
