"""The stand-in for CUDA's driver: order on streams, errors, failures on demand."""

import ctypes
import threading

import numpy as np

from tests.emulator.graphs import ACTIVE, NOT_CAPTURING
from tests.emulator.libraries import failure, launch

INVALID_VALUE, OUT_OF_MEMORY, INVALID_IMAGE, INVALID_CONTEXT = 1, 2, 200, 201
INVALID_HANDLE, NOT_FOUND, NOT_READY, LAUNCH_FAILED = 400, 500, 600, 719


def test_a_kernel_runs_between_copies(libraries, stream, module):
    kept = np.array([0, 1, 1, 0, 1], np.uint32)
    found = np.zeros(3, np.uint32)
    source, out = libraries.new("cuMemAlloc_v2", kept.nbytes), libraries.new("cuMemAlloc_v2", found.nbytes)
    libraries.call("cuMemcpyHtoDAsync_v2", source, kept.ctypes, kept.nbytes, stream)
    compact = libraries.new("cuModuleGetFunction", module, b"compact")
    launch(libraries, compact, stream, [source, len(kept), out], 256)
    libraries.call("cuMemcpyDtoHAsync_v2", found.ctypes, out, found.nbytes, stream)
    libraries.call("cuStreamSynchronize", stream)
    assert found.tolist() == [1, 2, 4]
    for memory in (source, out):
        libraries.call("cuMemFree_v2", memory)


def test_memory_is_never_zero_at_first(libraries, stream):
    for allocate, free in (("cuMemAlloc_v2", "cuMemFree_v2"), ("cuMemHostAlloc", "cuMemFreeHost")):
        memory = libraries.new(allocate, 300, 0)
        assert ctypes.string_at(memory, 300) == b"\xcd" * 300
        libraries.call(free, memory)
        assert failure(libraries.call, free, memory) == INVALID_VALUE


def test_streams_wait_for_events(libraries, stream, module):
    """A kernel that spins until told to end keeps its stream busy, and another one that waits for it."""
    other, event = libraries.new("cuStreamCreate", 0), libraries.new("cuEventCreate", 2)
    assert failure(libraries.call, "cuEventQuery", event + 1) == INVALID_HANDLE
    libraries.call("cuEventQuery", event)  # never recorded: nothing to wait for
    go, out = np.zeros(1, np.uint64), np.zeros(1, np.uint64)
    launch(libraries, libraries.new("cuModuleGetFunction", module, b"spins"), stream, [go.ctypes.data, 1], 1)
    libraries.call("cuEventRecord", event, stream)
    libraries.call("cuStreamWaitEvent", other, event, 0)
    libraries.call("cuMemcpyDtoDAsync_v2", out.ctypes.data, go.ctypes.data, 8, other)
    for query, handle in (("cuEventQuery", event), ("cuStreamQuery", stream), ("cuStreamQuery", other)):
        assert failure(libraries.call, query, handle) == NOT_READY
    assert out[0] == 0
    go[0] = 7
    libraries.call("cuStreamSynchronize", other)
    assert out[0] == 7
    libraries.call("cuEventSynchronize", event)
    libraries.call("cuStreamSynchronize", stream)
    for query, handle in (("cuEventQuery", event), ("cuStreamQuery", stream), ("cuStreamQuery", other)):
        libraries.call(query, handle)
    libraries.call("cuEventDestroy_v2", event)
    libraries.call("cuStreamDestroy_v2", other)


def test_a_failed_kernel_ends_all(libraries, stream, module):
    out = np.zeros(32, np.uint64)
    trap = libraries.new("cuModuleGetFunction", module, b"trap")
    launch(libraries, trap, stream, [out.ctypes.data, 32])
    assert failure(libraries.call, "cuStreamSynchronize", stream) == LAUNCH_FAILED
    assert failure(libraries.new, "cuMemAlloc_v2", 8) == LAUNCH_FAILED
    assert "trap: block (0, 0), thread 7: __trap, at planted.cu" in libraries.error()
    libraries.call("cuStreamSynchronize", stream)


def test_what_is_wrong_is_refused(libraries, stream, module, tmp_path):
    halves = libraries.new("cuModuleGetFunction", module, b"halves")
    assert failure(libraries.new, "cuModuleGetFunction", module, b"malloc") == NOT_FOUND
    assert failure(libraries.new, "cuModuleLoadData", b"\x7fELF") == INVALID_IMAGE
    assert failure(libraries.new, "cuMemAlloc_v2", 0) == INVALID_VALUE
    assert failure(libraries.call, "cuMemsetD32Async", 2, 0, 1, stream) == INVALID_VALUE
    assert failure(libraries.call, "cuStreamSynchronize", 12345) == INVALID_HANDLE
    for threads in (0, 1025):
        assert failure(launch, libraries, halves, stream, [0], threads) == INVALID_VALUE


def test_every_thread_needs_a_context(libraries):
    codes = []
    thread = threading.Thread(target=lambda: codes.append(failure(libraries.new, "cuStreamCreate", 0)))
    thread.start()
    thread.join()
    assert codes == [INVALID_CONTEXT]


def test_calls_fail_on_demand(libraries):
    libraries.fail_on("cuMemAlloc:2=2,cuStreamCreate@1:1=999,cuMemsetD8Async:1=1")
    assert failure(libraries.call, "cuMemsetD8Async", 0, 0, 0, 0) == INVALID_VALUE
    first = libraries.new("cuMemAlloc_v2", 8)
    assert failure(libraries.new, "cuMemAlloc_v2", 8) == OUT_OF_MEMORY
    libraries.call("cuMemFree_v2", first)
    libraries.call("cuMemFree_v2", libraries.new("cuMemAlloc_v2", 8))
    libraries.call("cuStreamDestroy_v2", libraries.new("cuStreamCreate", 0))
    libraries.make_current(1)
    assert failure(libraries.new, "cuStreamCreate", 0) == 999


UNSUPPORTED, INVALIDATED = 900, 901


def test_what_is_captured_runs_when_it_is_launched(graphs):
    """Arguments are those of the call, memory is read when the graph runs."""
    graphs.begin()
    assert graphs.status(graphs.stream) == ACTIVE
    graphs.add_one(0, graphs.stream)
    graphs.copy(1, 0, graphs.stream)
    exec = graphs.end()
    assert graphs.status(graphs.stream) == NOT_CAPTURING
    graphs.libraries.call("cuStreamSynchronize", graphs.stream)
    assert graphs.cells()[:2] == [0, 0]
    graphs.run(exec, 3)
    assert graphs.cells()[:2] == [3, 3]
    graphs.write(0, 10)
    graphs.run(exec)
    assert graphs.cells()[:2] == [11, 11]
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
    assert graphs.cells()[:3] == [5, 5, 5]


def test_branches_run_beside_each_other(emulated_graphs):
    """A kernel spins until the other branch, which was captured later, releases it."""
    graphs = emulated_graphs
    graphs.begin()
    graphs.order(graphs.stream, graphs.other)
    graphs.launch("spins", 0, graphs.stream)
    graphs.set(1, 6, graphs.stream)
    graphs.set(0, 1, graphs.other)
    graphs.order(graphs.other, graphs.stream)
    exec = graphs.end()
    graphs.run(exec)
    assert graphs.cells()[:2] == [1, 6]


def test_launches_of_one_graph_follow_each_other(graphs):
    """Launches on any streams follow each other, and keep their place among other work of the stream."""
    graphs.begin()
    graphs.add_one(0, graphs.stream)
    exec = graphs.end()
    for _ in range(10):
        graphs.libraries.call("cuGraphLaunch", exec, graphs.stream)
        graphs.libraries.call("cuGraphLaunch", exec, graphs.other)
    graphs.libraries.call("cuGraphLaunch", exec, 0)
    graphs.copy(1, 0, 0)
    graphs.libraries.call("cuStreamSynchronize", 0)
    assert graphs.cells()[:2] == [21, 21]
    graphs.set(0, 100, graphs.stream)
    graphs.run(exec)
    assert graphs.cells()[0] == 101


def test_a_graph_is_not_launched_into_a_capture(graphs):
    graphs.begin()
    graphs.add_one(0, graphs.stream)
    inner = graphs.end()
    graphs.begin()
    assert failure(graphs.libraries.call, "cuGraphLaunch", inner, graphs.stream) == UNSUPPORTED
    assert graphs.end_fails() == INVALIDATED
    graphs.run(inner)
    assert graphs.cells()[0] == 1


def test_an_empty_graph_runs(graphs):
    graphs.set(0, 5, graphs.stream)
    graphs.begin()
    graphs.run(graphs.end())
    assert graphs.cells() == [5, 0, 0, 0, 0, 0, 0, 0]


def test_a_kernel_that_fails_in_a_graph(emulated_graphs):
    graphs = emulated_graphs
    graphs.begin()
    graphs.launch("traps", 0, graphs.stream)
    exec = graphs.end()
    assert failure(graphs.run, exec) == LAUNCH_FAILED
    assert "traps: block (0, 0), thread 0: __trap" in graphs.libraries.error()
