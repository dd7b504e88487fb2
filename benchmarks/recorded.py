"""A whole call of one rank without its wire: packets that were recorded are received again, in memory.

    OMP_NUM_THREADS=1 python -m benchmarks.recorded                                 work of a rank beside predictions
    OMP_NUM_THREADS=1 python -m benchmarks.recorded --empty [--ranks 4] [--json FILE]     with nothing to sum

What is left is all that zenc computes in a call: kernels, Python, and the memory that it makes. The copies of packets
into the receiver's buffers stand for the wire, and are taken off; the pages that they touch first count for the wire.

Work is CPU time of a rank in the calls of the lab's workloads on 8 ranks. Predicted are kernels alone, with the numbers
of benchmarks/lab/measured/kernels.json; a call's own time, and a step's, stand for Python there.

Empty: a call of ``balanced`` as it is; and with async_op=True and wait(), as the DDP hook calls it, with the two
changes of thread that gloo's own all-reduce has as well. What those cost gloo shows in its all-reduce of the same
tensor in a group of one rank, which sends nothing. Medians over 200 batches of 20 calls, which take turns.
"""

import ctypes
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch._C._distributed_c10d import HashStore, ProcessGroupGloo

import zenc
from benchmarks.lab.settings import Workload
from benchmarks.lab.workloads import KINDS, sparse_gradient, units_of
from benchmarks.pages import parser_of, save_json
from benchmarks.predicted import kernels_of_the_lab, plan_of
from tests.support import local
from zenc.gradients.profile_fit import from_gradients
from zenc.pipeline import backend
from zenc.runtime.call.call_queue import Worker
from zenc.runtime.call.collective import Collective
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.transports.transport import Done, PacketTransport
from zenc.simulator.calibration import bandwidth_only
from zenc.simulator.predict import predict

RANKS = 8
STEP_BITS = (1 << 15) - 1
"""The bits of a tag for the step, and the packet of a message; the rest is the call."""
CALL_AT = slice(24, 32)
"""The place of the call's number in a message header."""
Packets = dict[tuple[int, int], torch.Tensor]


class OneCall(Communicator):
    """Communicator all of whose calls have the number of the recorded one."""

    def next_call(self, waits: bool = False) -> int:
        return self.calls


class RecordedCall(PacketTransport):
    """Rank 0's part in ``scheme`` among as many ranks as there are tensors.

    ``wire``: CPU seconds that the last call took to copy packets.
    """

    rank = 0

    def __init__(self, tensors: list[torch.Tensor], scheme: str = "balanced") -> None:
        self.size, self.mine, self.wire = len(tensors), tensors[0].clone(), 0.0
        artifact = zenc.compile(scheme, ranks=self.size)
        self.packets = recorded(artifact, tensors)
        nowhere: Any = None
        communicator = OneCall(nowhere, nowhere, self, Worker("recorded"))
        header = next(iter(self.packets.values()))
        communicator.calls = int.from_bytes(bytes(header[CALL_AT].tolist()), "little")
        made = backend(artifact, torch.device("cpu"), communicator, 60.0)
        self.collective = Collective(artifact, communicator, lambda _: made)

    def fresh(self) -> torch.Tensor:
        """Return a gradient to sum: a dense one is overwritten by its sum."""
        return self.mine if self.mine.is_sparse else self.mine.clone()

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        self.wire = 0.0
        return self.collective.all_reduce(tensor)

    def send(self, peer: int, tag: int, buffer: torch.Tensor) -> Done:
        return Done(buffer)

    def receive(self, peer: int, tag: int, buffer: torch.Tensor) -> Done:
        started = time.thread_time()
        packet = self.packets[peer, tag & STEP_BITS]
        ctypes.memmove(buffer.data_ptr(), packet.data_ptr(), packet.numel())
        self.wire += time.thread_time() - started
        return Done(buffer)

    def close(self) -> None:
        """Do nothing."""


def recorded(artifact: Any, tensors: list[torch.Tensor]) -> Packets:
    """Return the packets that rank 0 receives when ``tensors`` are summed, by peer, step and packet."""
    packets: Packets = {}
    ranks = local.collectives(artifact, len(tensors), deadline=60.0)
    transport: Any = ranks[0].communicator.transport
    receive = transport.receive

    class Keeping:
        def __init__(self, pending: Any, key: tuple[int, int]) -> None:
            self.pending, self.key = pending, key

        def wait(self, seconds: float) -> torch.Tensor:
            packet: torch.Tensor = self.pending.wait(seconds)
            packets[self.key] = packet.clone()
            return packet

    def receive_and_keep(peer: int, tag: int, buffer: torch.Tensor) -> Keeping:
        return Keeping(receive(peer, tag, buffer), (peer, tag & STEP_BITS))

    transport.receive = receive_and_keep
    local.run_all(ranks, [tensor.clone() for tensor in tensors])
    return packets


SEED, ROUNDS = 1, 12
ALL = ("holders", "balanced", "hierarchical_centralization", "sparcml", "agsparse")
CASES: tuple[tuple[Workload, tuple[str, ...]], ...] = (
    (KINDS["elements"], ALL),
    (replace(KINDS["elements"], density=0.05), ALL),
    (KINDS["rows"], (*ALL, "sparse_ps", "omnireduce")),
)


def compared() -> Iterator[tuple[Workload, str, float, float]]:
    """Yield workload, scheme, and seconds: measured, the least of ROUNDS calls, and predicted."""
    for workload, schemes in CASES:
        of = units_of(workload, RANKS, SEED)
        tensors = [sparse_gradient(of, rank, SEED) for rank in range(RANKS)]
        profile, kernels = from_gradients(of), replace(bandwidth_only("kernels"), **kernels_of_the_lab())
        for scheme in schemes:
            found = predict(plan_of(scheme), RANKS, profile, None, kernels)
            yield workload, scheme, least(RecordedCall(tensors, scheme)), found.kernels


def least(call: RecordedCall) -> float:
    """Return the CPU seconds of one call, without copying packets."""
    times = []
    for _ in range(ROUNDS):
        started = time.thread_time()
        call.all_reduce(call.mine)
        times.append(time.thread_time() - started - call.wire)
    return min(times)


ROWS, WIDTH = 10_000, 64
BATCHES, CALLS = 200, 20


def empty_calls(size: int) -> dict[str, Callable[[], object]]:
    """Return the calls of rank 0 among ``size`` by name, all of them the one call whose packets were recorded."""
    indices, values = torch.zeros(1, 0, dtype=torch.long), torch.zeros(0, WIDTH)
    empty = torch.sparse_coo_tensor(indices, values, (ROWS, WIDTH), check_invariants=False)
    collective = RecordedCall([empty] * size).collective
    alone: Any = ProcessGroupGloo(HashStore(), 0, 1, timedelta(seconds=60))
    return {
        "zenc": lambda: collective.all_reduce(empty),
        "zenc, async": lambda: collective.all_reduce(empty, async_op=True).wait(),
        "gloo's all-reduce": lambda: alone.allreduce([empty]).get_future().wait(),
    }


def per_call(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the median microseconds of a call."""
    batches: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(BATCHES):
        for name, call in calls.items():
            started = time.perf_counter()
            for _ in range(CALLS):
                call()
            batches[name].append((time.perf_counter() - started) / CALLS * 1e6)
    return {name: median(times) for name, times in batches.items()}


def show_empty(ranks: int, file: Path | None) -> None:
    rows = per_call(empty_calls(ranks))
    print(f"{ranks} ranks, empty gradient of {ROWS} x {WIDTH}, torch {torch.__version__}; us without messages")
    for name, took in rows.items():
        print(f"{name:20}{took:8.0f}")
    save_json(file, {"ranks": ranks, "microseconds": rows})


def main() -> None:
    parser = parser_of(__doc__, ranks=4)
    parser.add_argument("--empty", action="store_true", help="calls with nothing to sum")
    options = parser.parse_args()
    if options.empty:
        return show_empty(options.ranks, options.json)
    torch.set_num_threads(1)
    print(f"{'':40}{'measured':>10}{'predicted':>10}  ms")
    for workload, scheme, measured, predicted in compared():
        what = f"{workload.kind} {workload.density:.0%} {scheme}"
        print(f"{what:40}{measured * 1e3:10.2f}{predicted * 1e3:10.2f}")


if __name__ == "__main__":
    main()
