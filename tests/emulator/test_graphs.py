"""Streams are captured in graphs, and graphs run; on CUDA's own driver too (``-m gpu``)."""

from __future__ import annotations

from tests.emulator.graphs import ACTIVE, NOT_CAPTURING
from tests.emulator.libraries import failure

INVALID_VALUE, LAUNCH_FAILED, UNSUPPORTED, INVALIDATED = 1, 719, 900, 901


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
