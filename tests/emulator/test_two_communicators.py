"""The stand-in for NCCL: two communicators of the same ranks, whose groups are posted in one order, or in several."""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.emulator.libraries import UINT64, Failed, Libraries, UniqueId
from tests.emulator.ranks import INVALID_USAGE, SUM, Rank, on_communicator
from tests.support.fuzz import tried

NON_BLOCKING = 1
IN_ONE_ORDER = "do all ranks post to them in one order"


@pytest.fixture
def run_two() -> Callable[..., list[Any]]:
    """run_two(size, body): the results of body(rank, its end of another communicator, on a stream of its own)."""
    return on_two


def on_two(size: int, body: Callable[[Rank, Rank], Any]) -> list[Any]:
    libraries, id = Libraries(), UniqueId()
    libraries.make_current(0)
    libraries.call("ncclGetUniqueId", ctypes.byref(id))

    def on_both(rank: Rank) -> Any:
        with opened(libraries, size, id, rank.number) as other:
            return body(rank, other)

    found = on_communicator(libraries, size, on_both)
    for problem in found:
        if isinstance(problem, Exception):
            raise problem
    return found


@contextmanager
def opened(libraries: Libraries, size: int, id: UniqueId, number: int) -> Iterator[Rank]:
    stream = libraries.new("cuStreamCreate", NON_BLOCKING)
    communicator = libraries.new("ncclCommInitRank", size, id, number)
    yield Rank(libraries, number, communicator, stream)
    libraries.call("ncclCommAbort", communicator)
    libraries.call("cuStreamDestroy_v2", stream)


def reduce(rank: Rank) -> np.ndarray:
    """Return the sum of the ranks' ones."""
    values = np.ones(3, np.uint64)
    rank.all_reduce(values, values, UINT64, SUM)
    return values


def both(first: Rank, second: Rank) -> tuple[list[int], list[str]]:
    """Return the errors and messages of both, when all is done."""
    for rank in (first, second):
        rank.wait()  # each may be on the other's stream
    return [first.wait(), second.wait()], [first.message(), second.message()]


@settings(max_examples=tried(25), deadline=None)
@given(data=st.data())
def test_on_streams_of_their_own_any_order_ends(data):
    """Ranks are threads; each posts to the two in an order that is drawn for it, partly in one group."""
    size = data.draw(st.integers(2, 3))
    orders = [data.draw(st.permutations((0, 0, 1, 1))) for _ in range(size)]
    together = data.draw(st.booleans())

    def body(*ends: Rank) -> list[list[int]]:
        if together:
            ends[0].start()
        made = [reduce(ends[which]) for which in orders[ends[0].number]]
        if together:
            ends[0].end()
        assert both(*ends)[0] == [0, 0]
        return [values.tolist() for values in made]

    assert on_two(size, body) == [[[size] * 3] * 4] * size


@pytest.mark.parametrize("grouped", [False, True])
def test_on_one_stream_one_order_ends(run_two, grouped):
    def body(first: Rank, second: Rank) -> list[list[int]]:
        made, second = [], replace(second, stream=first.stream)
        for ends in ((first, second), (second, first)) * 3:
            if grouped:
                first.start()
            made += [reduce(rank) for rank in ends]
            if grouped:
                first.end()
        assert both(first, second)[0] == [0, 0]
        return [values.tolist() for values in made]

    assert run_two(2, body) == [[[2] * 3] * 12] * 2


def posted_crosswise(join: Callable[[Rank, Rank], Rank]) -> Callable[[Rank, Rank], tuple[list[int], list[str]]]:
    """Return a body that posts to the two in opposite orders on ranks; ``join`` puts the second behind the first."""

    def body(first: Rank, second: Rank) -> tuple[list[int], list[str]]:
        before, behind = (first, second) if first.number == 0 else (second, first)
        kept = []
        try:
            kept.append(reduce(before))
            kept.append(reduce(join(before, behind)))
        except Failed as problem:  # it was found meanwhile
            assert problem.code == INVALID_USAGE
        found = both(first, second)
        assert kept  # until all is done
        return found

    return body


def on_its_stream(before: Rank, behind: Rank) -> Rank:
    return replace(behind, stream=before.stream)


def behind_an_event(before: Rank, behind: Rank) -> Rank:
    event = before.libraries.new("cuEventCreate", 2)
    before.libraries.call("cuEventRecord", event, before.stream)
    behind.libraries.call("cuStreamWaitEvent", behind.stream, event, 0)
    return behind


def after_its_host(before: Rank, behind: Rank) -> Rank:
    before.wait()
    return behind


@pytest.mark.parametrize("join", [on_its_stream, behind_an_event, after_its_host])
def test_another_order_on_another_rank_is_found_where_something_keeps_it(run_two, join):
    """Each rank's first group waits for one behind the other rank's first: NCCL hangs."""
    start = time.monotonic()
    for errors, messages in run_two(2, posted_crosswise(join)):
        assert errors == [INVALID_USAGE] * 2
        for message in messages:
            assert IN_ONE_ORDER in message
            assert all(f"rank {rank}: ncclAllReduce of 3 uint64 to their sum" in message for rank in range(2))
            assert ("its host waits" in message) == (join is after_its_host)
    assert time.monotonic() - start < 10  # not by its time-out


def test_a_circle_of_three_ranks_is_found(run_two):
    """Rank 0 waits for 1 in one communicator, 1 for 2 in the other, and 2 for 0 behind both."""

    def body(first: Rank, second: Rank) -> list[int]:
        one_stream, values = replace(second, stream=first.stream), np.zeros(1, np.uint64)
        steps = {
            0: [(first, "receive", 1), (one_stream, "send", 2)],
            1: [(one_stream, "receive", 2), (first, "send", 0)],
            2: [(one_stream, "receive", 0), (one_stream, "send", 1)],
        }
        try:
            for end, call, peer in steps[first.number]:
                getattr(end, call)(values, peer)
        except Failed as problem:
            assert problem.code == INVALID_USAGE
        return both(first, second)[0]

    assert all(INVALID_USAGE in errors for errors in run_two(3, body))


def test_without_an_event_between_them_the_same_order_ends(run_two):
    assert run_two(2, posted_crosswise(lambda _, behind: behind)) == [([0, 0], ["", ""])] * 2


def test_two_threads_in_one_communicator_are_refused(run_two):
    """NCCL leaves it to its callers that only one thread at a time uses a communicator."""

    def body(first: Rank, second: Rank) -> tuple[int, list[int]]:
        codes: list[int] = []
        kept: list[np.ndarray] = []

        def post_beside() -> None:
            first.libraries.make_current(first.number)
            try:
                kept.append(reduce(first))
            except Failed as problem:
                codes.append(problem.code)

        first.start()
        values = reduce(first)
        for _ in itertools.repeat(None, 2):
            beside = threading.Thread(target=post_beside)
            beside.start()
            beside.join()
        others = reduce(second)  # another one may be in the same group
        first.end()
        assert both(first, second)[0] == [0, 0] and values.tolist() == others.tolist() == [2] * 3
        post_beside()
        return first.wait(), codes

    assert run_two(2, body) == [(0, [INVALID_USAGE] * 2)] * 2
