"""Captured streams: allowed calls, and the error codes of others.

``pytest -m gpu`` asks CUDA's own driver, but for what it has not documented, or would not survive.
"""

import ctypes
import threading
from collections.abc import Callable

import pytest

from tests.emulator.graphs import ACTIVE, GLOBAL, INVALID, NON_BLOCKING, NOT_CAPTURING, RELAXED, THREAD_LOCAL
from tests.emulator.libraries import failure

INVALID_VALUE, ILLEGAL_STATE = 1, 401
UNSUPPORTED, INVALIDATED, MERGE, UNMATCHED, UNJOINED, ISOLATION, IMPLICIT, CAPTURED_EVENT, WRONG_THREAD = range(
    900, 909
)


def test_a_fork_has_to_be_joined(graphs):
    graphs.begin()
    graphs.order(graphs.stream, graphs.other)
    graphs.set(0, 5, graphs.other)
    assert graphs.end_fails() == UNJOINED
    assert graphs.status(graphs.other) == NOT_CAPTURING
    graphs.begin()
    graphs.order(graphs.stream, graphs.other)  # nothing is on it: nothing to join
    graphs.run(graphs.end())
    assert graphs.cells()[0] == 0


@pytest.mark.parametrize(
    ("call", "arguments", "code"),
    [
        ("cuStreamSynchronize", ("stream",), UNSUPPORTED),
        ("cuStreamQuery", ("stream",), UNSUPPORTED),
        ("cuStreamSynchronize", ("other",), UNSUPPORTED),
        ("cuEventQuery", ("event",), CAPTURED_EVENT),
        ("cuEventSynchronize", ("event",), CAPTURED_EVENT),
        ("cuMemAlloc_v2", ("out", 8), UNSUPPORTED),
        ("cuMemHostAlloc", ("out", 8, 0), UNSUPPORTED),
        ("cuMemFree_v2", ("spare",), UNSUPPORTED),
        ("cuMemFreeHost", ("pinned",), UNSUPPORTED),
        ("cuMemsetD8Async", ("memory", 1, 1, 0), IMPLICIT),
        ("cuStreamSynchronize", (0,), UNSUPPORTED),
    ],
)
def test_what_must_not_be_done_in_a_capture_ends_it(graphs, call, arguments, code):
    spare, pinned = graphs.libraries.new("cuMemAlloc_v2", 8), graphs.libraries.new("cuMemHostAlloc", 8, 0)
    named = {**vars(graphs), "spare": spare, "pinned": pinned, "out": ctypes.byref(ctypes.c_uint64())}
    graphs.begin()
    graphs.order(graphs.stream, graphs.other)
    assert failure(graphs.libraries.call, call, *(named.get(argument, argument) for argument in arguments)) == code
    assert graphs.status(graphs.stream) == graphs.status(graphs.other) == INVALID
    assert failure(graphs.set, 0, 5, graphs.stream) == INVALIDATED
    assert failure(graphs.set, 0, 5, graphs.other) == INVALIDATED
    assert graphs.end_fails() == INVALIDATED
    graphs.set(0, 7, graphs.stream)
    graphs.libraries.call("cuStreamSynchronize", graphs.stream)
    assert graphs.cells()[0] == 7
    graphs.libraries.call("cuMemFree_v2", spare)
    graphs.libraries.call("cuMemFreeHost", pinned)


def test_the_null_stream_knows_only_streams_that_wait_for_it(graphs):
    beside = graphs.libraries.new("cuStreamCreate", NON_BLOCKING)
    graphs.begin(beside)
    graphs.set(0, 3, 0)
    graphs.libraries.call("cuStreamSynchronize", 0)
    assert graphs.status(0) == NOT_CAPTURING
    graphs.end(beside)
    graphs.libraries.call("cuStreamDestroy_v2", beside)
    assert failure(graphs.begin, 0) == UNSUPPORTED
    graphs.begin()
    assert failure(graphs.status, 0) == IMPLICIT
    assert graphs.status(graphs.stream) == ACTIVE
    graphs.end()
    assert graphs.cells()[0] == 3


def test_the_null_stream_of_another_device_is_another_one(emulated_graphs):
    graphs = emulated_graphs
    graphs.begin()
    graphs.libraries.make_current(1)
    graphs.set(1, 4, 0)
    graphs.libraries.make_current(0)
    graphs.end()
    assert graphs.cells()[1] == 4


def test_only_the_stream_where_it_began_ends_a_capture(emulated_graphs):
    graphs = emulated_graphs
    graphs.begin()
    graphs.order(graphs.stream, graphs.other)
    assert graphs.end_fails(graphs.other) == UNMATCHED
    assert graphs.end_fails() == INVALIDATED


def test_the_null_stream_does_not_join_a_capture(emulated_graphs):
    graphs = emulated_graphs
    beside = graphs.libraries.new("cuStreamCreate", NON_BLOCKING)
    for stream, code in ((graphs.stream, IMPLICIT), (beside, CAPTURED_EVENT)):
        graphs.begin(stream)
        assert failure(graphs.order, stream, 0) == code
        assert graphs.end_fails(stream) == INVALIDATED
    graphs.libraries.call("cuStreamDestroy_v2", beside)


def test_captures_begin_and_end_in_order(graphs):
    assert graphs.end_fails() == ILLEGAL_STATE
    graphs.begin()
    assert failure(graphs.begin) == ILLEGAL_STATE
    assert failure(graphs.begin, graphs.other, 3) == INVALID_VALUE
    graphs.end()


def test_nothing_in_a_capture_waits_for_what_is_outside(graphs):
    graphs.begin()
    graphs.libraries.call("cuStreamWaitEvent", graphs.stream, graphs.event, 0)  # never recorded
    assert failure(graphs.order, graphs.other, graphs.stream) == ISOLATION
    assert graphs.end_fails() == INVALIDATED


def test_nothing_outside_waits_for_what_was_captured(graphs):
    graphs.begin()
    graphs.libraries.call("cuEventRecord", graphs.event, graphs.stream)
    graphs.end()
    assert failure(graphs.libraries.call, "cuEventQuery", graphs.event) == CAPTURED_EVENT
    assert failure(graphs.libraries.call, "cuStreamWaitEvent", graphs.other, graphs.event, 0) == CAPTURED_EVENT
    graphs.order(graphs.stream, graphs.other)  # recorded again
    graphs.libraries.call("cuEventSynchronize", graphs.event)


def test_two_captures_do_not_merge(graphs):
    graphs.begin()
    graphs.begin(graphs.other)
    assert failure(graphs.order, graphs.stream, graphs.other) == MERGE
    assert graphs.end_fails() == graphs.end_fails(graphs.other) == INVALIDATED


def on_a_thread(body: Callable[[], int]) -> list[int]:
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(body()))
    thread.start()
    thread.join()
    return results


@pytest.mark.parametrize(("mode", "code"), [(GLOBAL, WRONG_THREAD), (THREAD_LOCAL, WRONG_THREAD), (RELAXED, 0)])
def test_a_capture_ends_on_its_thread(emulated_graphs, mode, code):
    graphs = emulated_graphs

    def end() -> int:
        graphs.libraries.make_current(0)
        if code:
            return graphs.end_fails()
        graphs.end()
        return 0

    graphs.begin(mode=mode)
    assert on_a_thread(end) == [code]
    if code:
        assert graphs.end_fails() == INVALIDATED


@pytest.mark.parametrize("own", [GLOBAL, THREAD_LOCAL, RELAXED])
@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
def test_other_threads_may_do_what_is_unsafe_unless_both_are_global(graphs, mode, own):
    """Somebody else's thread may query its own event while this thread captures."""
    libraries, mine = graphs.libraries, graphs.libraries.new("cuEventCreate", 2)

    def look() -> int:
        libraries.make_current(0)
        libraries.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(ctypes.c_int(own)))
        if mode == own == GLOBAL:
            return failure(libraries.call, "cuEventQuery", mine)
        libraries.call("cuEventQuery", mine)
        return 0

    graphs.begin(mode=mode)
    (code,) = on_a_thread(look)
    assert code == (UNSUPPORTED if mode == own == GLOBAL else 0)
    assert graphs.status(graphs.stream) == (INVALID if code else ACTIVE)
    if code:
        assert graphs.end_fails() == INVALIDATED
    else:
        graphs.end()


def test_a_thread_may_take_leave_to_allocate(graphs):
    mode = ctypes.c_int(RELAXED)
    graphs.begin()
    graphs.libraries.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    assert mode.value == GLOBAL
    graphs.libraries.call("cuMemFree_v2", graphs.libraries.new("cuMemAlloc_v2", 8))
    graphs.libraries.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    graphs.end()


def test_a_stream_that_is_destroyed_ends_its_capture(emulated_graphs):
    graphs = emulated_graphs
    gone = graphs.libraries.new("cuStreamCreate", 0)
    graphs.begin(gone)
    graphs.order(gone, graphs.other)
    graphs.libraries.call("cuStreamDestroy_v2", gone)
    graphs.set(0, 5, graphs.other)
    graphs.libraries.call("cuStreamSynchronize", graphs.other)
    assert graphs.cells()[0] == 5
