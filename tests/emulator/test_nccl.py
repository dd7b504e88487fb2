"""The stand-in for NCCL: messages meet, and errors name those that can't."""

from __future__ import annotations

import ctypes
import threading
import time

import numpy as np
import pytest

from tests.emulator.libraries import FLOAT32, INT64, NCCL_IN_PROGRESS, Config, Failed, UniqueId, failure
from tests.emulator.ranks import INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR, Rank

ILLEGAL_STATE = 401
"""CUDA's error for a forbidden call in a capture."""
SENT = np.array([5, 6, 7])


def test_a_ring_of_groups(run):
    def body(rank: Rank) -> list[int]:
        own, found = np.array([rank.number, 7]), np.zeros(2, np.int64)
        for _ in range(3):
            rank.start()
            rank.send(own, (rank.number + 1) % 4)
            rank.receive(found, (rank.number - 1) % 4)
            rank.end()
            rank.libraries.call("cuMemcpyDtoDAsync_v2", own.ctypes.data, found.ctypes.data, 16, rank.stream)
        assert rank.wait() == 0
        return own.tolist()

    assert run(4, body) == [[(number - 3) % 4, 7] for number in range(4)]


def test_messages_between_two_ranks_keep_their_order(run):
    def body(rank: Rank) -> list[int]:
        out = np.zeros(3, np.int64)
        rank.start()
        for i in range(3):
            if rank.number == 0:
                rank.send(SENT[i : i + 1], 1)
            else:
                rank.receive(out[i : i + 1], 0)
        rank.end()
        assert rank.wait() == 0
        return out.tolist()

    assert run(2, body)[1] == SENT.tolist()


def test_a_rank_sends_to_itself_in_a_group(run):
    def body(rank: Rank) -> int:
        out = np.zeros(3, np.int64)
        rank.start()
        rank.receive(out, 0)
        rank.send(SENT, 0)
        rank.end()
        assert rank.wait() == 0
        return out.tolist()

    assert run(1, body) == [SENT.tolist()]


def test_a_missing_group_is_named(run):
    """Each rank waits for the other to receive, so neither comes to its receive."""

    def body(rank: Rank) -> tuple[int, str]:
        out = np.zeros(3, np.int64)
        rank.send(SENT, 1 - rank.number)
        try:
            rank.receive(out, 1 - rank.number)
        except Failed as problem:
            assert problem.code == INVALID_USAGE
        return rank.wait(), rank.message()

    start = time.monotonic()
    for error, message in run(2, body):
        assert error == INVALID_USAGE
        assert message == (
            "ranks wait for each other (is a group missing, or a peer wrong?): rank 0: ncclSend of 3 int64 to rank 1; "
            "rank 1: ncclSend of 3 int64 to rank 0"
        )
    assert time.monotonic() - start < 10  # not by its time-out


def test_other_counts_and_types_are_named(run):
    def body(rank: Rank, count: int, type: int) -> tuple[int, str]:
        if rank.number == 0:
            rank.send(SENT, 1)
        else:
            rank.receive(np.zeros(count, np.int64), 0, type)
        return rank.wait(), rank.message()

    for count, type, name in ((2, INT64, "2 int64"), (3, FLOAT32, "3 float32")):
        for error, message in run(2, lambda rank, count=count, type=type: body(rank, count, type)):
            assert error == INVALID_ARGUMENT
            assert "rank 0: ncclSend of 3 int64 to rank 1" in message
            assert f"rank 1: ncclRecv of {name} from rank 0" in message


def test_an_abort_wakes_the_others(run):
    def body(rank: Rank) -> tuple[int, str]:
        if rank.number == 0:
            time.sleep(0.05)
            rank.libraries.call("ncclCommAbort", rank.communicator)
            return REMOTE_ERROR, "rank 0 aborted"
        rank.receive(np.zeros(3, np.int64), 0)
        return rank.wait(), rank.message()

    assert run(3, body) == [(REMOTE_ERROR, "rank 0 aborted")] * 3


def test_a_rank_can_abort_what_it_waits_for(run):
    def body(rank: Rank) -> None:
        if rank.number == 1:
            rank.receive(np.zeros(3, np.int64), 0)
            rank.libraries.call("ncclCommAbort", rank.communicator)
            rank.libraries.call("cuStreamSynchronize", rank.stream)

    assert run(2, body) == [None, None]


def test_no_memory_is_asked_for_behind_messages(run, libraries):
    """CUDA may wait for the messages then, and they for a peer that never comes."""

    def body(rank: Rank) -> list[int]:
        out, codes = np.zeros(3, np.int64), []
        if rank.number == 0:
            rank.receive(out, 1)
            codes = [
                failure(libraries.new, name, 8, *more) for name, *more in (("cuMemAlloc_v2",), ("cuMemHostAlloc", 0))
            ]
            met.set()
        else:
            met.wait(20)
            rank.send(SENT, 0)
        assert rank.wait() == 0
        libraries.call("cuMemFree_v2", libraries.new("cuMemAlloc_v2", 8))
        return codes

    met = threading.Event()
    assert run(2, body)[0] == [ILLEGAL_STATE] * 2


def test_a_dead_rank_says_nothing(run, libraries):
    """The dead rank's second group never comes, and its own calls fail; the others hang until they abort."""
    libraries.fail_on("dead@0:2=1")

    def body(rank: Rank) -> str:
        out = np.zeros(3, np.int64)
        for _ in range(2):
            rank.start()
            rank.send(SENT, 1 - rank.number)
            rank.receive(out, 1 - rank.number)
            rank.end()
        if rank.number == 0:
            with pytest.raises(Failed):
                rank.send(SENT, 1)
            return rank.message()
        time.sleep(0.1)
        with pytest.raises(Failed, match="cuStreamQuery returned 600"):
            rank.libraries.call("cuStreamQuery", rank.stream)
        assert rank.libraries.asynchronous_error(rank.communicator) == 0
        return "hung"

    assert run(2, body) == ["the rank is dead, on demand", "hung"]


def test_a_communicator_that_does_not_block_tells_when_it_is_ready(libraries):
    id = UniqueId()
    libraries.call("ncclGetUniqueId", ctypes.byref(id))
    config = Config(48, 0xCAFEBEEF, 21800, 0, max_blocks=4)
    communicators = []
    for number in range(2):
        libraries.make_current(number)
        communicators.append(libraries.new("ncclCommInitRankConfig", 2, id, number, ctypes.byref(config)))
        assert libraries.asynchronous_error(communicators[0]) == NCCL_IN_PROGRESS
    assert libraries.asynchronous_error(communicators[0]) == 0
    for communicator in communicators:
        libraries.call("ncclCommDestroy", communicator)


def test_what_is_wrong_is_refused(run):
    def body(rank: Rank) -> list[int]:
        codes = []
        for peer, type, communicator in ((2, INT64, 0), (-1, INT64, 0), (1, 10, 0), (1, INT64, 1)):
            try:
                rank.libraries.call(
                    "ncclSend", SENT.ctypes, 3, type, peer, rank.communicator + communicator, rank.stream
                )
            except Failed as problem:
                codes.append(problem.code)
        try:
            rank.end()
        except Failed as problem:
            codes.append(problem.code)
        return codes

    assert run(2, body) == [[INVALID_ARGUMENT] * 4 + [INVALID_USAGE]] * 2
