"""The stand-in for NCCL: reductions of all ranks, which have to agree about them."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from tests.emulator.libraries import FLOAT16, FLOAT32, INT32, INT64, UINT64, Failed
from tests.emulator.ranks import (
    INVALID_ARGUMENT,
    INVALID_USAGE,
    MAXIMUM,
    MINIMUM,
    PRODUCT,
    REMOTE_ERROR,
    SUM,
    Rank,
)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("count", [0, 1, 1000])
@pytest.mark.parametrize(("op", "join"), [(SUM, np.add), (MAXIMUM, np.maximum)])
@pytest.mark.parametrize("in_place", [False, True])
def test_all_ranks_get_the_same(run, size, count, op, join, in_place):
    own = np.random.default_rng(1).integers(0, 2**64, (size, count), np.uint64)

    def body(rank: Rank) -> np.ndarray:
        values = own[rank.number].copy()
        out = values if in_place else np.zeros(count, np.uint64)
        rank.all_reduce(values, out, UINT64, op)
        assert rank.wait() == 0
        return out

    for out in run(size, body):
        assert np.array_equal(out, join.reduce(own, axis=0))


@pytest.mark.parametrize(("type", "dtype"), [(INT32, np.int32), (INT64, np.int64), (FLOAT32, np.float32)])
@pytest.mark.parametrize(("op", "expected"), [(SUM, -1), (PRODUCT, -6), (MAXIMUM, 2), (MINIMUM, -3)])
def test_types_with_a_sign(run, type, dtype, op, expected):
    def body(rank: Rank) -> float:
        values = np.array([(2, -3)[rank.number]], dtype)
        rank.all_reduce(values, values, type, op)
        assert rank.wait() == 0
        return float(values[0])

    assert run(2, body) == [expected] * 2


def test_several_beside_messages_in_one_group(run):
    def body(rank: Rank) -> list[list[int]]:
        most, total, found = (np.full(2, rank.number + 1, np.uint64) for _ in range(3))
        sent = np.array([rank.number, 9])
        rank.start()
        rank.send(sent, (rank.number + 1) % 3)
        rank.all_reduce(most, most, UINT64, MAXIMUM)
        rank.receive(found, (rank.number - 1) % 3)
        rank.all_reduce(total, total, UINT64, SUM)
        rank.end()
        assert rank.wait() == 0
        return [most.tolist(), total.tolist(), found.tolist()]

    assert run(3, body) == [[[3, 3], [6, 6], [(number - 1) % 3, 9]] for number in range(3)]


@pytest.mark.parametrize(
    ("count", "type", "op", "named"),
    [(2, UINT64, SUM, "2 uint64 to their sum"), (3, INT64, SUM, "3 int64"), (3, UINT64, MAXIMUM, "to their maximum")],
)
def test_ranks_that_disagree_are_named(run, count, type, op, named):
    def body(rank: Rank) -> tuple[int, str]:
        values = np.zeros(3, np.uint64)
        if rank.number == 1:
            rank.all_reduce(values[:count], values[:count], type, op)
        else:
            rank.all_reduce(values, values, UINT64, SUM)
        return rank.wait(), rank.message()

    for error, message in run(3, body):
        assert error == INVALID_ARGUMENT
        assert "rank 0: ncclAllReduce of 3 uint64 to their sum, but rank 1: ncclAllReduce of" in message
        assert named in message


def test_other_groups_are_named(run):
    def body(rank: Rank) -> tuple[int, str]:
        values = np.zeros(3, np.uint64)
        rank.start()
        for _ in range(1 + rank.number):
            rank.all_reduce(values, values, UINT64, SUM)
        rank.end()
        return rank.wait(), rank.message()

    for error, message in run(2, body):
        assert (error, message) == (INVALID_ARGUMENT, "rank 0: 1 ncclAllReduce in a group, but rank 1: 2")


def test_a_rank_that_waits_for_something_else_is_named(run):
    """Rank 1 wants a message before it reduces, which rank 0 would send afterwards."""

    def body(rank: Rank) -> tuple[int, str]:
        values = np.zeros(3, np.uint64)
        try:
            if rank.number == 1:
                rank.receive(values, 0)
            rank.all_reduce(values, values, UINT64, SUM)
            if rank.number == 0:
                rank.send(values, 1)
        except Failed as problem:
            assert problem.code == INVALID_USAGE
        return rank.wait(), rank.message()

    start = time.monotonic()
    for error, message in run(2, body):
        assert error == INVALID_USAGE
        assert "rank 0: ncclAllReduce of 3 uint64 to their sum; rank 1: ncclRecv of 3 int64 from rank 0" in message
    assert time.monotonic() - start < 10  # not by its time-out


def test_an_abort_wakes_the_others(run):
    told = threading.Barrier(2)

    def body(rank: Rank) -> tuple[int, str]:
        values = np.zeros(3, np.uint64)
        if rank.number == 2:
            time.sleep(0.05)
            rank.libraries.call("ncclCommAbort", rank.communicator)
            return REMOTE_ERROR, "rank 2 aborted"
        rank.all_reduce(values, values, UINT64, SUM)
        found = rank.wait(), rank.message()
        told.wait(60)  # who ends aborts too
        return found

    assert run(3, body) == [(REMOTE_ERROR, "rank 2 aborted")] * 3


def test_what_is_wrong_is_refused(run):
    def body(rank: Rank) -> list[int]:
        codes = []
        values = np.zeros(3, np.uint64)
        for out, type, op in (
            (values, 10, SUM),
            (values, FLOAT16, SUM),
            (values, UINT64, 4),
            (values, UINT64, -1),
            (values[1:], UINT64, SUM),
        ):
            try:
                rank.all_reduce(values, out, type, op)
            except Failed as problem:
                codes.append(problem.code)
        return codes

    assert run(1, body) == [[INVALID_ARGUMENT] * 5]
