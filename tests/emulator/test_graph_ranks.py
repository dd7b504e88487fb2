"""NCCL's stand-in in CUDA graphs: captured calls of ranks meet in each run of their graphs."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.emulator.graphs import NON_BLOCKING, THREAD_LOCAL, Captured
from tests.emulator.libraries import INT64, UINT64, failure
from tests.emulator.ranks import SUM, Rank

UNSUPPORTED, INVALIDATED = 900, 901
UNHANDLED_CUDA_ERROR = 1
"""NCCL's result for an error of CUDA."""


def test_ranks_meet_again_in_each_run(run):
    """Messages around a ring and a sum are in graphs; another message goes between two runs."""

    def body(rank: Rank) -> list[int]:
        own, found, total = np.array([rank.number]), np.zeros(1, np.int64), np.zeros(1, np.uint64)
        graphs = Captured(rank.libraries, rank.stream)

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
        graphs.close()
        return [int(own[0]), int(found[0]), int(total[0])]

    assert run(3, body) == [[10 * ((number - 3) % 3), 10 * ((number - 3) % 3), 30] for number in range(3)]


def test_groups_of_a_communicator_keep_their_order_on_branches(run):
    """Without an event between the streams, NCCL orders what it puts on them."""

    def body(rank: Rank) -> list[int]:
        out = np.zeros(2, np.int64)
        sent = np.array([5, 6])
        event, other = rank.libraries.new("cuEventCreate", 2), rank.libraries.new("cuStreamCreate", NON_BLOCKING)
        graphs = Captured(rank.libraries, rank.stream)
        graphs.begin(mode=THREAD_LOCAL)
        rank.libraries.call("cuEventRecord", event, rank.stream)
        rank.libraries.call("cuStreamWaitEvent", other, event, 0)
        for stream, cell in ((rank.stream, 0), (other, 1)):
            on_stream = Rank(rank.libraries, rank.number, rank.communicator, stream)
            if rank.number == 0:
                on_stream.send(sent[cell : cell + 1], 1, INT64)
            else:
                on_stream.receive(out[cell : cell + 1], 0, INT64)
        rank.libraries.call("cuEventRecord", event, other)
        rank.libraries.call("cuStreamWaitEvent", rank.stream, event, 0)
        graphs.run(graphs.end(), 2)
        assert rank.wait() == 0
        graphs.close()
        rank.libraries.call("cuStreamDestroy_v2", other)
        return out.tolist()

    assert run(2, body)[1] == [5, 6]


@pytest.mark.parametrize("end", ["ncclCommAbort", "ncclCommDestroy"])
def test_a_communicator_ends_after_the_graphs_that_hold_its_messages(run, end):
    """NCCL waits for the graphs too, and abort does not end that wait."""

    def body(rank: Rank) -> list[bool]:
        values = np.ones(1, np.uint64)
        graphs = Captured(rank.libraries, rank.stream)
        graphs.begin(mode=THREAD_LOCAL)
        rank.all_reduce(values, values, UINT64, SUM)
        graphs.end()
        ending = threading.Thread(target=lambda: rank.libraries.call(end, rank.communicator), daemon=True)
        ending.start()
        ending.join(0.3)
        waits = ending.is_alive()
        graphs.close()
        ending.join(20)
        return [waits, ending.is_alive()]

    assert run(2, body) == [[True, False]] * 2


def test_posting_to_an_invalid_capture_fails(run):
    def body(rank: Rank) -> int:
        values = np.zeros(1, np.uint64)
        graphs = Captured(rank.libraries, rank.stream)
        graphs.begin(mode=THREAD_LOCAL)
        assert failure(rank.libraries.call, "cuStreamQuery", rank.stream) == UNSUPPORTED
        code = failure(rank.all_reduce, values, values, UINT64, SUM)
        assert graphs.end_fails() == INVALIDATED
        return code

    assert run(1, body) == [UNHANDLED_CUDA_ERROR]
