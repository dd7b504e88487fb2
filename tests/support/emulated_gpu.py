"""GPUs of the emulator for the run time: collectives of several ranks, as threads, whose tensors are in host memory.

The emulated device's memory is the host's, so that tensors of the CPU pass for tensors of a GPU. The host's side is
compiled
as by ``tests.support.emulated``: unoptimised.
"""

import contextlib
import ctypes
import os
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.emulator.build import engine, kernels
from tests.emulator.graphs import Captured
from tests.emulator.libraries import Libraries
from tests.support.emulated import compiled_host, compiled_unit, interpreter
from tests.support.meeting import Meeting, communicator_of
from zenc import api, pipeline
from zenc.codegen.artifact import Artifact
from zenc.codegen.render import render
from zenc.runtime import load
from zenc.runtime.backend_api import Backend
from zenc.runtime.call.collective import Collective
from zenc.runtime.gpu import sequence
from zenc.runtime.gpu.backend import GpuBackend
from zenc.runtime.gpu.capacity import FixedCapacity
from zenc.runtime.gpu.device import DeviceKernels, ImageOf, unit_with
from zenc.runtime.gpu.partition import Words
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.lossy import gpu_kernels

NOT_READY = 600
_POOL = ThreadPoolExecutor(max_workers=16)

gpu_kernels.build = lambda sources, **_: compiled_host(sources)
sequence.library = SimpleNamespace(interpreter=lambda _: interpreter(), compiled=lambda code, *_: compiled_unit(code))


def _failure_of(failure: Callable[[Any, Any], Exception]) -> Callable[[Any, Any], Exception]:
    """Return a function that waits for kernels first: a host frees memory at once, and torch in a stream's order."""

    def waited(of: Any, text: Any) -> Exception:
        of.gpu.wait()
        return failure(of, text)

    return waited


gpu_kernels.GpuCompression.failure = _failure_of(gpu_kernels.GpuCompression.failure)


class EmulatedGpu:
    """Device ``ordinal``. After ``left`` more allocations it is out of memory; None: never."""

    def __init__(self, ordinal: int) -> None:
        self.ordinal, self.left, self.kernels = ordinal, None, DeviceKernels()
        self._libraries = Libraries()
        self._libraries.make_current(ordinal)
        self._stream = self._libraries.new("cuStreamCreate", 1)
        self._graphs = Captured(self._libraries, self._stream)
        weakref.finalize(self, _destroy, self._libraries, self._stream, self._graphs)

    left: int | None
    mode: str | None = None
    """Mode of compiling kernels (``tests.emulator.build.MODES``); None: that of the environment."""

    @property
    def name(self) -> str:
        return str(self.ordinal)

    def make_current(self) -> None:
        """Make the device current for this thread, as ``torch.cuda.device`` does."""
        self._libraries.make_current(self.ordinal)

    def libraries(self, size: int) -> tuple[str, str | None]:
        return str(engine()), str(engine()) if size > 1 else None

    def images(self, artifact: Artifact) -> ImageOf:
        sources = render(type(artifact.plan.mapping), "cuda")
        mode = self.mode or os.environ.get("EMULATOR_MODE", "plain")
        return lambda kernel: bytes(kernels(unit_with(kernel, sources)[0], mode)) + b"\0"

    def stream(self) -> int:
        return self._stream

    def wait(self) -> None:
        """Wait for all that is on the stream."""
        self._libraries.call("cuStreamSynchronize", self._stream)

    def memory(self, size: int) -> torch.Tensor:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise torch.OutOfMemoryError("the test has taken all memory")
        return torch.empty(size, dtype=torch.uint8)

    def view(self, address: int, size: int) -> torch.Tensor:
        return torch.frombuffer((ctypes.c_ubyte * size).from_address(address), dtype=torch.uint8)

    def calls(self, function: str) -> int:
        """Count calls of a function of the driver; "wait": events that the host has waited for."""
        return self._libraries.calls(function, self.ordinal)

    def pinned(self, numbers: int) -> torch.Tensor:
        return torch.zeros(numbers, dtype=torch.int64)

    def captured(self, work: Callable[[], None]) -> int:
        """Return a graph of ``work`` on the caller's stream, ready to be launched; it lives as long as this."""
        self.make_current()
        self._graphs.begin()
        work()
        return self._graphs.end()

    def launch(self, graph: int) -> None:
        self.make_current()
        self._libraries.call("cuGraphLaunch", graph, self._stream)

    def uploaded(self, words: Words) -> tuple[int, object]:
        copy = torch.frombuffer(words, dtype=torch.int64).clone()
        return copy.data_ptr(), copy


def _destroy(libraries: Libraries, stream: int, graphs: Captured) -> None:
    """Destroy a stream, whose thread has a stack that would otherwise last as long as the process."""
    graphs.close()
    libraries.call("cuStreamDestroy_v2", stream)


@contextlib.contextmanager
def only_current(device: torch.device) -> Iterator[None]:
    """Make a device current as ``torch.cuda.device`` does, where none is before and after."""
    libraries = Libraries()
    libraries.make_current(device.index)
    try:
        yield
    finally:
        libraries.call("cuCtxSetCurrent", 0)


def alone() -> Communicator:
    """Make the communicator of one rank."""
    return communicator_of(Meeting(1), 0)


def loaded_ranks(artifact: Artifact, size: int) -> list[Collective]:
    """Return what ``zenc.load`` makes of ``artifact`` for each of ``size`` ranks on its own GPU."""
    meeting = Meeting(size)
    communicators = [communicator_of(meeting, rank) for rank in range(size)]
    gpus = [EmulatedGpu(rank) for rank in range(size)]

    def backend(of: Artifact, _: torch.device, communicator: Communicator, *rest: Any) -> Backend:
        gpu = gpus[communicator.rank]
        gpu.make_current()
        return GpuBackend(of, gpu, communicator, *rest[:2])  # shared memory is for calls on CPUs

    groups: list[Any] = list(range(size))
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(load, "_usual_device", lambda _: torch.device("cpu"))
        changed.setattr(load, "communicator_for", lambda rank, _: communicators[rank])
        changed.setattr(pipeline, "backend", backend)
        return list(_POOL.map(lambda rank: api.load(artifact, rank, deadline=300.0), groups))


class EmulatedRank:
    """A collective on its own GPU."""

    def __init__(
        self, artifact: Artifact, meeting: Meeting, rank: int, deadline: float, capacity: FixedCapacity | None
    ) -> None:
        self.gpu = EmulatedGpu(rank)
        communicator = communicator_of(meeting, rank)
        backend = GpuBackend(artifact, self.gpu, communicator, deadline, capacity)
        self.collective = load.collective_of(artifact, communicator, lambda _: backend)


def emulated_ranks(
    artifact: Artifact, size: int, deadline: float = 300.0, capacity: FixedCapacity | None = None
) -> list[EmulatedRank]:
    """Load a collective for each of ``size`` ranks; raise the error of the lowest rank that failed."""
    return [rank.result() for rank in futures_of_ranks(artifact, size, deadline, capacity)]


def futures_of_ranks(
    artifact: Artifact, size: int, deadline: float = 300.0, capacity: FixedCapacity | None = None
) -> list[Future[EmulatedRank]]:
    """Return futures of the loaded collectives; that of a rank that fails has an exception."""
    meeting = Meeting(size)
    return [_POOL.submit(EmulatedRank, artifact, meeting, rank, deadline, capacity) for rank in range(size)]
