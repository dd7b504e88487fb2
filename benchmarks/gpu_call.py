"""Benchmark of whole calls of one rank on one GPU, kernel by kernel, beside reads of the tensor in the same run.

    python -m benchmarks.gpu_call [--scheme balanced] [--ranks 8] [--link B] [--dtype T] [--repeat N]
        [--units DENSE ROWS WIDE]

Ranks that share the GPU make a call once, and what rank 0 receives is kept; then rank 0 makes the same call again and
again, alone, and its messages are copied from there. So the times are those of one rank, without the wire.

* dense: 214 million float32 values of which 5.2 % are not 0 on a rank, the largest tensor of Zen's evaluation (DeepFM).
* rows: 1 % of 2,000,000 rows of 128 values, and of 800,000 rows of 1,024, as an uncoalesced gradient has them.
* empty: one value, which shows what a call costs before any byte.

The floor of the same run is a read of the values, half a copy; ``reads`` is a time over that of one read. Medians; the
kernels are timed by PyTorch's profiler in one more call. It prints one JSON object, and "not measured" without a GPU.
"""

import contextlib
import ctypes
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.pages import new_parser, rounded
from tests.emulator.build import compiled
from tests.gpu.machine import FLAGS, Machine, real_gpu
from tests.support.meeting import Meeting, communicator_of
from zenc.api import compile
from zenc.codegen.artifact import Artifact
from zenc.codegen.render import headers, include_dirs
from zenc.errors import BuildError
from zenc.runtime.call.collective import Collective
from zenc.runtime.gpu.backend import GpuBackend
from zenc.runtime.gpu.device import GpuDevice, TorchGpu
from zenc.runtime.gpu.driver import driver
from zenc.runtime.load import collective_of

SOURCE = Path(__file__).with_name("gpu_replay.cpp")
UNITS = (214_000_000, 2_000_000, 800_000)
DENSE, ROWS = 0.052, 0.01
"""Densities of a rank's gradient."""
MS = 1e3


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel's share of a call."""

    name: str
    launches: int
    milliseconds: float


class Clock:
    """The GPU as a benchmark sees it: when its work has ended, and what its kernels took."""

    device = torch.device("cuda:0")

    def __init__(self) -> None:
        self._own = threading.local()

    def gpu(self, nccl: str) -> GpuDevice:
        """Return the GPU of a rank whose NCCL is at this path."""
        return _Shared(self.device, nccl)

    def stream(self) -> contextlib.AbstractContextManager[Any]:
        """Return the stream of this thread, always the same: the allocator keeps freed memory for its stream."""
        if not hasattr(self._own, "stream"):
            made: Any = torch.cuda.Stream
            self._own.stream = made(self.device)
        return torch.cuda.stream(self._own.stream)

    def wait(self) -> None:
        """Wait until the GPU has done all that it was given."""
        torch.cuda.synchronize(self.device)

    def median(self, work: Callable[[], object], repeat: int) -> float:
        """Return the milliseconds of ``work``, the median of ``repeat`` runs after a first one."""
        took = []
        for _ in range(repeat + 1):
            self.wait()
            started = time.perf_counter()
            work()
            self.wait()
            took.append(MS * (time.perf_counter() - started))
        return statistics.median(took[1:])

    def kernels(self, work: Callable[[], object]) -> tuple[Kernel, ...]:
        """Return all that ``work`` has the GPU do, with copies and memsets, what takes longest first."""
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            work()
            self.wait()
        took = ((event.key, event.count, event.self_device_time_total / MS) for event in profiler.key_averages())
        return tuple(sorted((Kernel(*each) for each in took if each[-1] > 0), key=lambda each: -each.milliseconds))


class _Shared(TorchGpu):
    """A GPU of several ranks, with an NCCL that lets them share it."""

    def __init__(self, device: torch.device, nccl: str) -> None:
        super().__init__(device)
        self._nccl = nccl

    def libraries(self, size: int) -> tuple[str, str | None]:
        return driver().path, self._nccl


@dataclass(frozen=True, slots=True)
class Measured:
    """A call of one workload: medians of ``repeat`` runs in milliseconds, and the kernels of one."""

    workload: str
    call: float
    read: float
    received: int
    """Bytes of the messages that the rank received."""
    kernels: tuple[Kernel, ...]

    @property
    def reads(self) -> float:
        """The call over one read of the values."""
        return self.call / self.read

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "reads": self.reads}


def replayed(machine: Machine) -> str:
    """Return the path of the NCCL that keeps what a rank receives, before that of ``machine``."""
    defined = (f'-DDRIVER="{machine.cuda}"', f'-DNCCL="{machine.nccl}"')
    command = [*FLAGS, *defined, *(f"-I{path}" for path in include_dirs("cuda")), str(SOURCE)]
    return str(compiled(command, {**headers("cuda"), SOURCE.name: SOURCE.read_text("utf-8")}))


class SharedRanks:
    """``size`` ranks of ``artifact`` on the GPU of ``clock``, as threads, whose NCCL is at the path ``nccl``."""

    def __init__(self, artifact: Artifact, size: int, nccl: str, clock: Clock) -> None:
        self.size, self.clock, self.threads, meeting = size, clock, ThreadPoolExecutor(size), Meeting(size)

        def rank(number: int) -> Collective:
            communicator = communicator_of(meeting, number)
            backend = GpuBackend(artifact, clock.gpu(nccl), communicator, 300.0)
            return collective_of(artifact, communicator, lambda _: backend)

        self.ranks = [made.result() for made in [self.threads.submit(rank, number) for number in range(size)]]

    def sums(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the sum of each rank, of one of ``tensors`` each, which may be changed."""
        self.clock.wait()
        calls = [self.threads.submit(self._ranked, number, each) for number, each in enumerate(tensors)]
        found = [call.result(300) for call in calls]
        self.clock.wait()
        return found

    def _ranked(self, rank: int, tensor: torch.Tensor) -> torch.Tensor:
        with self.clock.stream():
            return self.called(rank, tensor)

    def called(self, rank: int, tensor: torch.Tensor) -> torch.Tensor:
        """Return the sum by a call of ``rank`` on the stream of this thread."""
        return self.ranks[rank].all_reduce(tensor, name="tensor")


class Bench(SharedRanks):
    """Ranks of which the first can make its call again, alone."""

    def __init__(self, artifact: Artifact, size: int, machine: Machine, clock: Clock) -> None:
        nccl = replayed(machine)
        self.replay = ctypes.CDLL(nccl)
        self.replay.replay_begin.restype = self.replay.replay_kept.restype = ctypes.c_uint64
        super().__init__(artifact, size, nccl, clock)

    def measured(self, workload: str, gradients: Sequence[torch.Tensor], repeat: int) -> Measured:
        """Return the times of rank 0's call with the first of ``gradients``, of one rank each; every sum is compared.

        Raises RuntimeError where a call that is made again asks for other messages, or has another sum.
        """
        expected, mine = self._recorded(gradients), gradients[0]
        messages, received = self._kept()
        runs = [self._again(mine, expected, messages) for _ in range(repeat + 1)]
        values = mine._values() if mine.is_sparse else mine
        read = self.clock.median(lambda: values.clone(), repeat) / 2
        copy = mine.clone()
        found = self.clock.kernels(lambda: self._ranked(0, copy))
        return Measured(workload, statistics.median(runs[1:]), read, received, found)

    def _recorded(self, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the sum of ``gradients``, one of each rank, and keep the messages that rank 0 receives."""
        self.replay.replay_record(0)
        sums = self.sums([gradient.clone() for gradient in gradients])
        self.replay.replay_begin()
        return sums[0]

    def called(self, rank: int, tensor: torch.Tensor) -> torch.Tensor:
        """Return the sum by a call of ``rank``, always the first of its group, as the headers of kept messages say."""
        self.ranks[rank].communicator.calls = 0
        return super().called(rank, tensor)

    def _again(self, gradient: torch.Tensor, expected: torch.Tensor, messages: int) -> float:
        tensor = gradient.clone()
        with self.clock.stream():
            self.clock.wait()
            started = time.perf_counter()
            found = self.called(0, tensor)
            self.clock.wait()
            took = MS * (time.perf_counter() - started)
        if (asked := self.replay.replay_begin()) != messages:
            raise RuntimeError(f"a call that is made again asks for {asked} messages, and {messages} are kept")
        if not same(found, expected):
            raise RuntimeError("a call that is made again has another sum")
        return took

    def _kept(self) -> tuple[int, int]:
        size = ctypes.c_uint64()
        return int(self.replay.replay_kept(ctypes.byref(size))), size.value


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if not one.is_sparse:
        return torch.equal(one, other)
    return torch.equal(one._indices(), other._indices()) and torch.equal(one._values(), other._values())


def dense_gradients(device: torch.device, size: int, units: int) -> list[torch.Tensor]:
    """Return a tensor [units] float32 for each rank, of which ``DENSE`` are not 0."""
    generator = torch.Generator(device).manual_seed(1)

    def one() -> torch.Tensor:
        here = torch.rand(units, generator=generator, device=device) < DENSE
        return here * (torch.rand(units, generator=generator, device=device) + 1)

    return [one() for _ in range(size)]


def row_gradients(device: torch.device, size: int, rows: int, width: int) -> list[torch.Tensor]:
    """Return a COO tensor [rows, width] float32 for each rank, with ``ROWS`` of the rows, in any order."""
    generator = torch.Generator(device).manual_seed(2)

    def one() -> torch.Tensor:
        ids = torch.randperm(rows, generator=generator, device=device)[: max(1, round(rows * ROWS))]
        values = torch.randn(len(ids), width, generator=generator, device=device)
        return torch.sparse_coo_tensor(ids[None], values, (rows, width), check_invariants=False)

    return [one() for _ in range(size)]


def results(bench: Bench, units: Sequence[int], repeat: int, dtype: torch.dtype = torch.float32) -> list[Measured]:
    """Return all workloads, one after another: ``units`` of the dense tensor, the rows and the wide rows."""
    device, size, (dense, rows, wide) = bench.clock.device, bench.size, units
    workloads: dict[str, Callable[[], list[torch.Tensor]]] = {
        "empty": lambda: [torch.zeros(1, device=device) for _ in range(size)],
        f"rows, {rows:,} x 128, 1 %": lambda: row_gradients(device, size, rows, 128),
        f"rows, {wide:,} x 1,024, 1 %": lambda: row_gradients(device, size, wide, 1024),
        f"dense, {dense:,}, 5.2 %": lambda: dense_gradients(device, size, dense),
    }
    return [bench.measured(name, [each.to(dtype) for each in made()], repeat) for name, made in workloads.items()]


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--scheme", default="balanced", help="the scheme whose calls are timed")
    parser.add_argument("--ranks", type=int, default=8, help="ranks of the call")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"), help="of the values")
    parser.add_argument("--link", help="choose formats by seconds over links such as '3600 Gbit/s' (NVLink)")
    parser.add_argument("--repeat", type=int, default=10, help="runs of which the median counts")
    parser.add_argument("--units", type=int, nargs=3, default=UNITS, metavar=("DENSE", "ROWS", "WIDE"))
    given = parser.parse_args()
    try:
        machine = real_gpu()
    except BuildError:
        print(json.dumps("not measured"))
        return 0
    name = f"{driver().gpu(0).name}, CUDA {driver().cuda}, torch {torch.__version__}"
    bench = Bench(compile(given.scheme, ranks=given.ranks, link=given.link), given.ranks, machine, Clock())
    found = results(bench, given.units, given.repeat, getattr(torch, given.dtype))
    asked = {"scheme": given.scheme, "ranks": given.ranks, "link": given.link, "dtype": given.dtype}
    print(json.dumps(rounded({"machine": name, **asked, "measured": [each.to_json() for each in found]})))
    return 0


if __name__ == "__main__":
    sys.exit(main())
