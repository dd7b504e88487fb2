"""CUDA graphs, from Python: streams that are captured, and what can be launched then.

The calls are those of CUDA's driver, so that tests can hold the emulator's and NVIDIA's to the same.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from tests.emulator.libraries import Libraries, failure, launch
from tests.gpu.machine import Machine

GLOBAL, THREAD_LOCAL, RELAXED = range(3)
"""Modes of a capture."""
NOT_CAPTURING, ACTIVE, INVALID = range(3)
"""States of a stream."""
NON_BLOCKING = 1
CELLS = 8
KERNELS = """
#include "zenc_cuda/platform.h"

ZENC_KERNEL(add_one, (zenc::u64 * out)) { out[0] += 1; }

ZENC_KERNEL(spins, (zenc::u64 * go)) {
    while (atomicAdd(go, 0ULL) == 0) __nanosleep(100);
}

ZENC_KERNEL(traps, (zenc::u64*)) { __trap(); }
"""


@dataclass
class Captured:
    """A stream that is captured."""

    libraries: Libraries
    stream: int
    execs: list[int] = field(default_factory=list, kw_only=True)
    """Executable graphs of the stream, until ``close``."""

    def begin(self, stream: int | None = None, mode: int = GLOBAL) -> None:
        self.libraries.call("cuStreamBeginCapture_v2", self.stream if stream is None else stream, mode)

    def end(self, stream: int | None = None) -> int:
        """End the capture, and return the executable graph; the graph itself is destroyed."""
        graph = ctypes.c_uint64()
        self.libraries.call("cuStreamEndCapture", self.stream if stream is None else stream, ctypes.byref(graph))
        exec = self.libraries.new("cuGraphInstantiateWithFlags", graph.value, 0)
        self.libraries.call("cuGraphDestroy", graph.value)
        self.execs.append(exec)
        return exec

    def close(self) -> None:
        while self.execs:
            self.libraries.call("cuGraphExecDestroy", self.execs.pop())

    def end_fails(self, stream: int | None = None) -> int:
        """Return the code with which the capture fails to end; there is no graph then."""
        graph = ctypes.c_uint64(7)
        end = self.stream if stream is None else stream
        code = failure(self.libraries.call, "cuStreamEndCapture", end, ctypes.byref(graph))
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


@dataclass
class Graphs(Captured):
    """Further streams, an event, and ``CELLS`` words of device memory, which are 0 at first."""

    other: int
    event: int
    memory: int
    side: int
    module: int

    def cell(self, number: int) -> int:
        return self.memory + 8 * number

    def cells(self) -> list[int]:
        """Return the memory's words now, whatever is under way."""
        out = np.zeros(CELLS, np.uint64)
        self.libraries.copy(out.ctypes.data, self.memory, out.nbytes, self.side)
        return out.tolist()

    def write(self, number: int, value: int) -> None:
        self.libraries.copy(self.cell(number), np.array([value], np.uint64).ctypes.data, 8, self.side)

    def set(self, number: int, value: int, stream: int) -> None:
        """Set the lowest byte."""
        self.libraries.call("cuMemsetD8Async", self.cell(number), value, 1, stream)

    def copy(self, to: int, source: int, stream: int) -> None:
        self.libraries.call("cuMemcpyDtoDAsync_v2", self.cell(to), self.cell(source), 8, stream)

    def order(self, first: int, then: int) -> None:
        """Make later work on a stream wait for earlier work on another one."""
        self.libraries.call("cuEventRecord", self.event, first)
        self.libraries.call("cuStreamWaitEvent", then, self.event, 0)

    def launch(self, kernel: str, number: int, stream: int) -> None:
        function = self.libraries.new("cuModuleGetFunction", self.module, kernel.encode())
        launch(self.libraries, function, stream, [self.cell(number)], 1)

    def add_one(self, number: int, stream: int) -> None:
        self.launch("add_one", number, stream)


@contextmanager
def graphs_on(machine: Machine) -> Iterator[Graphs]:
    """Return graphs on the machine's first device, which is this thread's."""
    libraries = Libraries(machine.cuda)
    libraries.make_current(machine.device(0))
    module = libraries.new("cuModuleLoadData", machine.image({"graphs.cu": KERNELS}))
    stream, other = (libraries.new("cuStreamCreate", 0) for _ in range(2))
    side, event = libraries.new("cuStreamCreate", NON_BLOCKING), libraries.new("cuEventCreate", 2)
    memory = libraries.new("cuMemAlloc_v2", 8 * CELLS)
    libraries.call("cuMemsetD8Async", memory, 0, 8 * CELLS, side)
    libraries.call("cuStreamSynchronize", side)
    yield Graphs(libraries, stream, other, event, memory, side, module)
    libraries.call("cuEventDestroy_v2", event)
    for each in (stream, other, side):
        libraries.call("cuStreamDestroy_v2", each)
    libraries.call("cuMemFree_v2", memory)
    libraries.call("cuModuleUnload", module)
