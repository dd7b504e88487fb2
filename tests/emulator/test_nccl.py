"""The stand-in for NCCL names the ranks of messages that do not match, and of those that wait in a circle."""

import ctypes
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.emulator.libraries import INT64, Failed, Libraries, UniqueId, failure
from tests.emulator.ranks import INVALID_ARGUMENT, INVALID_USAGE, SUM, Rank, on_communicator

UNSUPPORTED_UNDER_MESSAGES = 401
SENT = np.arange(3)


@pytest.fixture
def run(libraries: Libraries) -> Callable[..., list[Any]]:
    """run(size, body): the results of body(rank) on all ranks of a new communicator."""
    return partial(on_communicator, libraries)


def waited(rank: Rank, *calls: Callable[[], None]) -> tuple[int, str]:
    """Return the error and the message of ``rank`` after ``calls``, which may fail since the others' have."""
    try:
        for call in calls:
            call()
    except Failed as problem:
        assert problem.code == INVALID_USAGE
    return rank.wait(), rank.message()


@pytest.mark.one_in(1)
@pytest.mark.parametrize("size", [2, 3])
def test_a_missing_group_is_named(run, size):
    """Each rank waits for the next one to receive, so none comes to its receive."""

    def body(rank: Rank) -> tuple[int, str]:
        out, following, before = np.zeros(3, np.int64), (rank.number + 1) % size, (rank.number - 1) % size
        return waited(rank, lambda: rank.send(SENT, following), lambda: rank.receive(out, before))

    for error, message in run(size, body):
        assert error == INVALID_USAGE and "is a group missing, or a peer wrong?" in message
        assert all(f"rank {k}: ncclSend of 3 int64 to rank {(k + 1) % size}" in message for k in range(size))


def test_two_threads_in_one_communicator_are_refused(run, libraries, capfd):
    """A thread sums while another one has a group of the same communicator that it has not ended."""

    def body(rank: Rank) -> int:
        values, codes = np.ones(3, np.int64), []
        libraries.call("ncclGroupStart")
        rank.all_reduce(values, values, INT64, SUM)
        other = threading.Thread(target=lambda: codes.append(failure(rank.all_reduce, values, values, INT64, SUM)))
        other.start()
        other.join(20)
        libraries.call("ncclGroupEnd")
        assert rank.wait() == 0 and values.tolist() == [2] * 3
        return codes[0]

    assert run(2, body) == [INVALID_USAGE] * 2
    assert "two threads use a communicator at once" in capfd.readouterr().err


def test_other_counts_and_other_sums_are_named(run):
    def messages(rank: Rank) -> tuple[int, str]:
        rank.send(SENT, 1) if rank.number == 0 else rank.receive(np.zeros(2, np.int64), 0)
        return rank.wait(), rank.message()

    def sums(rank: Rank) -> tuple[int, str]:
        values = np.zeros(3 - rank.number, np.int64)
        rank.all_reduce(values, values, INT64, SUM)
        return rank.wait(), rank.message()

    for body, one, other in ((messages, "Send of 3", "Recv of 2"), (sums, "AllReduce of 3", "AllReduce of 2")):
        for error, message in run(2, body):
            assert error == INVALID_ARGUMENT
            assert f"rank 0: nccl{one} int64" in message and f"rank 1: nccl{other} int64" in message


def test_no_memory_is_asked_for_behind_messages(run, libraries):
    """CUDA may wait for the messages then, and they for a peer that never comes."""
    met = threading.Event()

    def body(rank: Rank) -> int:
        code = UNSUPPORTED_UNDER_MESSAGES
        if rank.number == 0:
            rank.receive(np.zeros(3, np.int64), 1)
            code = failure(libraries.new, "cuMemAlloc_v2", 8)
            met.set()
        else:
            met.wait(20)
            rank.send(SENT, 0)
        assert rank.wait() == 0
        return code

    assert run(2, body) == [UNSUPPORTED_UNDER_MESSAGES] * 2


def test_two_communicators_in_other_orders_on_one_stream_are_named(run, libraries):
    """Each rank's first sum waits for one behind the other rank's first: NCCL hangs."""
    id = UniqueId()
    libraries.call("ncclGetUniqueId", ctypes.byref(id))

    def body(first: Rank) -> tuple[int, str]:
        second = replace(first, communicator=libraries.new("ncclCommInitRank", 2, id, first.number))
        values = [np.ones(3, np.int64) for _ in range(2)]
        order = (first, second) if first.number == 0 else (second, first)
        calls = (partial(each.all_reduce, of, of, INT64, SUM) for each, of in zip(order, values, strict=True))
        found = waited(first, *calls)
        libraries.call("ncclCommAbort", second.communicator)
        return found

    for error, message in run(2, body):
        assert error == INVALID_USAGE and "in one order" in message
        assert all(f"rank {rank}: ncclAllReduce of 3 int64 to their sum" in message for rank in range(2))
