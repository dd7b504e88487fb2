"""The stand-in for CUDA's driver: streams are captured in graphs, and graphs run."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from tests.emulator.libraries import INT64, UINT64, Libraries, failure, launch
from tests.emulator.ranks import SUM, Rank

INVALID_VALUE, ILLEGAL_STATE, NOT_READY, LAUNCH_FAILED = 1, 401, 600, 719
UNSUPPORTED, INVALIDATED, MERGE, UNMATCHED, UNJOINED, ISOLATION, IMPLICIT, CAPTURED_EVENT, WRONG_THREAD = range(
    900, 909
)
GLOBAL, THREAD_LOCAL, RELAXED = range(3)
NON_BLOCKING = 1
NOT_CAPTURING, ACTIVE, INVALID = range(3)


@dataclass
class Graphs:
    """Two streams, an event, and memory to work on."""

    libraries: Libraries
    stream: int
    other: int
    event: int
    memory: np.ndarray

    def begin(self, stream: int | None = None, mode: int = GLOBAL) -> None:
        self.libraries.call("cuStreamBeginCapture_v2", self.stream if stream is None else stream, mode)

    def end(self, stream: int | None = None) -> int:
        """What can be launched of the graph, which itself is destroyed."""
        graph = ctypes.c_uint64(7)
        try:
            self.libraries.call("cuStreamEndCapture", self.stream if stream is None else stream, ctypes.byref(graph))
        finally:
            captured = graph.value
        exec = self.libraries.new("cuGraphInstantiateWithFlags", captured, 0)
        self.libraries.call("cuGraphDestroy", captured)
        return exec

    def abandon(self) -> int:
        """End what has become invalid, or is not to be used: the code."""
        graph = ctypes.c_uint64(7)
        code = failure(self.libraries.call, "cuStreamEndCapture", self.stream, ctypes.byref(graph))
        assert graph.value == 0
        return code

    def run(self, exec: int, times: int = 1) -> None:
        for _ in range(times):
            self.libraries.call("cuGraphLaunch", exec, self.stream)
        self.libraries.call("cuStreamSynchronize", self.stream)

    def status(self, stream: int) -> int:
        out = ctypes.c_int()
        self.libraries.call("cuStreamIsCapturing", stream, ctypes.byref(out))
        return out.value

    def set(self, cell: int, value: int, stream: int) -> None:
        self.libraries.call("cuMemsetD8Async", self.memory[cell:].ctypes.data, value, 1, stream)

    def copy(self, to: int, source: int, stream: int) -> None:
        self.libraries.call(
            "cuMemcpyDtoDAsync_v2", self.memory[to:].ctypes.data, self.memory[source:].ctypes.data, 8, stream
        )

    def order(self, first: int, then: int, event: int | None = None) -> None:
        self.libraries.call("cuEventRecord", event or self.event, first)
        self.libraries.call("cuStreamWaitEvent", then, event or self.event, 0)


@pytest.fixture
def graphs(libraries, stream) -> Iterator[Graphs]:
    other, event = libraries.new("cuStreamCreate", 0), libraries.new("cuEventCreate", 2)
    yield Graphs(libraries, stream, other, event, np.zeros(8, np.uint64))
    libraries.call("cuEventDestroy_v2", event)
    libraries.call("cuStreamDestroy_v2", other)


def test_what_is_captured_runs_when_it_is_launched(graphs, module):
    """Arguments are those of the call, memory is read when the graph runs."""
    graphs.begin()
    assert graphs.status(graphs.stream) == ACTIVE
    add_one = graphs.libraries.new("cuModuleGetFunction", module, b"add_one")
    launch(graphs.libraries, add_one, graphs.stream, [graphs.memory.ctypes.data, 1])
    graphs.copy(1, 0, graphs.stream)
    exec = graphs.end()
    assert graphs.status(graphs.stream) == NOT_CAPTURING
    graphs.libraries.call("cuStreamSynchronize", graphs.stream)
    assert graphs.memory[:2].tolist() == [0, 0]
    graphs.run(exec, 3)
    assert graphs.memory[:2].tolist() == [3, 3]
    graphs.memory[0] = 10
    graphs.run(exec)
    assert graphs.memory[:2].tolist() == [11, 11]
    graphs.libraries.call("cuGraphExecDestroy", exec)
    assert failure(graphs.libraries.call, "cuGraphLaunch", exec, graphs.stream) == INVALID_VALUE


def test_a_stream_forks_and_is_joined(graphs):
    graphs.begin()
    graphs.set(0, 5, graphs.stream)
    assert graphs.status(graphs.other) == NOT_CAPTURING
    graphs.order(graphs.stream, graphs.other)
    assert graphs.status(graphs.other) == ACTIVE
    graphs.copy(1, 0, graphs.other)
    graphs.order(graphs.other, graphs.stream)
    graphs.copy(2, 1, graphs.stream)
    exec = graphs.end()
    assert graphs.status(graphs.other) == NOT_CAPTURING
    graphs.run(exec, 2)
    assert graphs.memory[:3].tolist() == [5, 5, 5]


def test_branches_run_beside_each_other(graphs, module):
    """The kernel spins until the other branch, which was captured later, lets it go on."""
    graphs.begin()
    graphs.order(graphs.stream, graphs.other)
    spins = graphs.libraries.new("cuModuleGetFunction", module, b"spins")
    launch(graphs.libraries, spins, graphs.stream, [graphs.memory.ctypes.data, 1], 1)
    graphs.set(1, 6, graphs.stream)
    graphs.set(0, 1, graphs.other)
    graphs.order(graphs.other, graphs.stream)
    exec = graphs.end()
    graphs.run(exec)
    assert graphs.memory[:2].tolist() == [1, 6]


def test_launches_of_one_graph_follow_each_other(graphs, module):
    """On whatever streams; and what is on the stream comes before and after."""
    graphs.begin()
    add_one = graphs.libraries.new("cuModuleGetFunction", module, b"add_one")
    launch(graphs.libraries, add_one, graphs.stream, [graphs.memory.ctypes.data, 1])
    exec = graphs.end()
    for _ in range(10):
        graphs.libraries.call("cuGraphLaunch", exec, graphs.stream)
        graphs.libraries.call("cuGraphLaunch", exec, graphs.other)
    graphs.libraries.call("cuGraphLaunch", exec, 0)
    graphs.copy(1, 0, 0)
    assert graphs.memory[:2].tolist() == [21, 21]
    graphs.set(0, 100, graphs.stream)
    graphs.run(exec)
    assert graphs.memory[0] == 101


def test_a_graph_is_captured_in_another_one(graphs, module):
    add_one = graphs.libraries.new("cuModuleGetFunction", module, b"add_one")
    graphs.begin()
    launch(graphs.libraries, add_one, graphs.stream, [graphs.memory.ctypes.data, 1])
    graphs.copy(1, 0, graphs.stream)
    inner = graphs.end()
    graphs.begin()
    graphs.set(0, 7, graphs.stream)
    for _ in range(2):
        graphs.libraries.call("cuGraphLaunch", inner, graphs.stream)
    graphs.copy(2, 1, graphs.stream)
    outer = graphs.end()
    graphs.libraries.call("cuGraphExecDestroy", inner)
    assert graphs.memory.tolist() == [0] * 8
    graphs.run(outer)
    assert graphs.memory[:3].tolist() == [9, 9, 9]


def test_an_empty_graph_runs(graphs):
    graphs.begin()
    graphs.run(graphs.end())


def test_a_kernel_that_fails_in_a_graph(graphs, module):
    graphs.begin()
    trap = graphs.libraries.new("cuModuleGetFunction", module, b"trap")
    launch(graphs.libraries, trap, graphs.stream, [graphs.memory.ctypes.data, 32])
    exec = graphs.end()
    assert failure(graphs.run, exec) == LAUNCH_FAILED
    assert "trap: block (0, 0), thread 7: __trap" in graphs.libraries.error()


def test_a_fork_has_to_be_joined(graphs):
    graphs.begin()
    graphs.order(graphs.stream, graphs.other)
    graphs.set(0, 5, graphs.other)
    assert graphs.abandon() == UNJOINED
    assert graphs.status(graphs.other) == NOT_CAPTURING
    graphs.begin()
    graphs.order(graphs.stream, graphs.other)  # nothing is on it: nothing to join
    graphs.run(graphs.end())
    assert graphs.memory[0] == 0


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
        ("cuMemFree_v2", (4096,), UNSUPPORTED),
        ("cuMemFreeHost", (4096,), UNSUPPORTED),
        ("cuMemsetD8Async", ("memory", 1, 1, 0), IMPLICIT),
        ("cuStreamSynchronize", (0,), IMPLICIT),
        ("cuStreamWaitEvent", (0, "event", 0), IMPLICIT),
        ("cuStreamEndCapture", ("other", "out"), UNMATCHED),
    ],
)
def test_what_must_not_be_done_in_a_capture_ends_it(graphs, call, arguments, code):
    named = {**vars(graphs), "memory": graphs.memory.ctypes.data, "out": ctypes.byref(ctypes.c_uint64())}
    graphs.begin()
    graphs.order(graphs.stream, graphs.other)
    assert failure(graphs.libraries.call, call, *(named.get(argument, argument) for argument in arguments)) == code
    assert graphs.status(graphs.stream) == graphs.status(graphs.other) == INVALID
    assert failure(graphs.set, 0, 5, graphs.stream) == INVALIDATED
    assert failure(graphs.set, 0, 5, graphs.other) == INVALIDATED
    assert graphs.abandon() == INVALIDATED
    graphs.set(0, 7, graphs.stream)
    graphs.libraries.call("cuStreamSynchronize", graphs.stream)
    assert graphs.memory[0] == 7


def test_the_null_stream_knows_only_streams_that_wait_for_it(graphs):
    beside = graphs.libraries.new("cuStreamCreate", NON_BLOCKING)
    graphs.begin(beside)
    graphs.set(0, 3, 0)
    assert graphs.status(0) == NOT_CAPTURING
    graphs.end(beside)
    graphs.libraries.call("cuStreamDestroy_v2", beside)
    assert failure(graphs.begin, 0) == UNSUPPORTED
    graphs.begin()
    assert failure(graphs.status, 0) == IMPLICIT
    assert graphs.status(graphs.stream) == ACTIVE
    graphs.libraries.make_current(1)
    graphs.set(1, 4, 0)
    graphs.libraries.make_current(0)
    graphs.end()
    assert graphs.memory[:2].tolist() == [3, 4]


def test_captures_begin_and_end_in_order(graphs):
    assert graphs.abandon() == ILLEGAL_STATE
    graphs.begin()
    assert failure(graphs.begin) == ILLEGAL_STATE
    assert failure(graphs.begin, graphs.other, 3) == INVALID_VALUE
    graphs.end()


def test_nothing_in_a_capture_waits_for_what_is_outside(graphs):
    graphs.begin()
    graphs.libraries.call("cuStreamWaitEvent", graphs.stream, graphs.event, 0)  # never recorded
    assert failure(graphs.order, graphs.other, graphs.stream) == ISOLATION
    assert graphs.abandon() == INVALIDATED


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
    assert graphs.abandon() == INVALIDATED
    assert failure(graphs.end, graphs.other) == INVALIDATED


def on_a_thread(body) -> list:
    """What body() gives on another thread, with the context of device 0."""
    results: list = []
    thread = threading.Thread(target=lambda: results.append(body()))
    thread.start()
    thread.join()
    return results


@pytest.mark.parametrize(("mode", "code"), [(GLOBAL, WRONG_THREAD), (THREAD_LOCAL, WRONG_THREAD), (RELAXED, 0)])
def test_a_capture_ends_on_its_thread(graphs, mode, code):
    def end() -> int:
        graphs.libraries.make_current(0)
        if code:
            return graphs.abandon()
        graphs.end()
        return 0

    graphs.begin(mode=mode)
    assert on_a_thread(end) == [code]
    if code:
        assert graphs.abandon() == INVALIDATED


@pytest.mark.parametrize("own", [GLOBAL, THREAD_LOCAL, RELAXED])
@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
def test_other_threads_may_do_what_is_unsafe_unless_both_are_global(graphs, mode, own):
    """As when somebody else's thread looks at its own event while this one captures."""
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
        graphs.abandon()
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


def test_a_stream_that_is_destroyed_ends_its_capture(graphs):
    gone = graphs.libraries.new("cuStreamCreate", 0)
    graphs.begin(gone)
    graphs.order(gone, graphs.other)
    graphs.libraries.call("cuStreamDestroy_v2", gone)
    graphs.set(0, 5, graphs.other)
    graphs.libraries.call("cuStreamSynchronize", graphs.other)
    assert graphs.memory[0] == 5


def test_ranks_meet_again_in_each_run(run):
    """Messages around a ring and a sum, in graphs; a message that is not in one goes between two runs."""

    def body(rank: Rank) -> list[int]:
        own, found, total = np.array([rank.number]), np.zeros(1, np.int64), np.zeros(1, np.uint64)
        graphs = Graphs(rank.libraries, rank.stream, 0, 0, own)

        def exchange() -> None:
            rank.start()
            rank.send(own, (rank.number + 1) % 3)
            rank.receive(found, (rank.number - 1) % 3)
            rank.end()

        graphs.begin(mode=THREAD_LOCAL)
        exchange()
        rank.libraries.call("cuMemcpyDtoDAsync_v2", own.ctypes.data, found.ctypes.data, 8, rank.stream)
        rank.all_reduce(found, total, UINT64, SUM)
        exec = graphs.end()
        graphs.run(exec, 2)
        exchange()
        own[0] *= 10
        graphs.run(exec)
        assert rank.wait() == 0
        return [int(own[0]), int(found[0]), int(total[0])]

    assert run(3, body) == [[10 * ((number - 3) % 3), 10 * ((number - 3) % 3), 30] for number in range(3)]


def test_groups_of_a_communicator_keep_their_order_on_branches(run):
    """Without an event between the streams: NCCL orders what it puts on them."""

    def body(rank: Rank) -> list[int]:
        out = np.zeros(2, np.int64)
        sent = np.array([5, 6])
        event, other = rank.libraries.new("cuEventCreate", 2), rank.libraries.new("cuStreamCreate", NON_BLOCKING)
        graphs = Graphs(rank.libraries, rank.stream, other, event, out)
        graphs.begin(mode=THREAD_LOCAL)
        graphs.order(rank.stream, other)
        for stream, cell in ((rank.stream, 0), (other, 1)):
            on_stream = Rank(rank.libraries, rank.number, rank.communicator, stream)
            if rank.number == 0:
                on_stream.send(sent[cell : cell + 1], 1, INT64)
            else:
                on_stream.receive(out[cell : cell + 1], 0, INT64)
        graphs.order(other, rank.stream)
        graphs.run(graphs.end(), 2)
        assert rank.wait() == 0
        rank.libraries.call("cuStreamDestroy_v2", other)
        return out.tolist()

    assert run(2, body)[1] == [5, 6]


def test_posting_to_an_invalid_capture_fails(run):
    def body(rank: Rank) -> int:
        values = np.zeros(1, np.uint64)
        graphs = Graphs(rank.libraries, rank.stream, 0, 0, values)
        graphs.begin(mode=THREAD_LOCAL)
        assert failure(rank.libraries.call, "cuStreamQuery", rank.stream) == UNSUPPORTED
        code = failure(rank.all_reduce, values, values, UINT64, SUM)
        graphs.abandon()
        return code

    assert run(1, body) == [1]  # ncclUnhandledCudaError
