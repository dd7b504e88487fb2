"""Work of a rank in a call, by CPU time, beside what the cost model predicts of it.

    OMP_NUM_THREADS=1 python -m benchmarks.computed

The calls are those of the lab's workloads on 8 ranks, without their wire: packets that were recorded are received again
in memory, so that kernels, Python, and the memory that both make remain. Predicted are kernels alone, with the
numbers of benchmarks/lab/measured/kernels.json; a call's own time, and a step's, stand for Python there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import torch

from benchmarks.lab.settings import Workload
from benchmarks.lab.workloads import KINDS, sparse_gradient, units_of
from benchmarks.predicted import kernels_of_the_lab, plan_of
from benchmarks.recorded import RANKS, RecordedCall
from zenc.gradients.profile_fit import from_gradients
from zenc.simulator.calibration import bandwidth_only
from zenc.simulator.predict import predict

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


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print(f"{'':40}{'measured':>10}{'predicted':>10}  ms")
    for workload, scheme, measured, predicted in compared():
        what = f"{workload.kind} {workload.density:.0%} {scheme}"
        print(f"{what:40}{measured * 1e3:10.2f}{predicted * 1e3:10.2f}")


if __name__ == "__main__":
    main()
