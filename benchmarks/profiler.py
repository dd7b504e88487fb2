"""The cost of a profiler in calls of a scheme: CPU time of a rank, so that other work on the machine does not count.

    python benchmarks/profiler.py [--ranks 2] [--calls 200]

Of an embedding's sparse gradient and of a dense one of the same rows, each with 2 % of 200,000 rows of 64 values: a
call by schemes/balanced.zen without a profiler; what a call that is not sampled adds; what a sampled one adds, of which
the marks are made by the thread that trains, and the rest is the small all-reduce behind the call.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import zenc
from zenc.torch.hook import ZencState

ROWS, WIDTH, HELD = 200_000, 64, 4000
UNSAMPLED = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--calls", type=int, default=200)
    options = parser.parse_args()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    mp.spawn(measure, (options.ranks, options.calls, store.port), options.ranks)


def measure(rank: int, size: int, calls: int, port: int) -> None:
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    collective = zenc.load("balanced")
    for kind, make in (("sparse", sparse), ("dense", dense)):
        gradient = make(rank)
        plain, unsampled, every = ZencState(collective), zenc.Profiler(every=1 << 40), zenc.Profiler(every=1)
        sampled = ZencState(collective, profiler=every)
        marks = cpu(partial(every.marks, "table", gradient), calls)
        every._calls.clear()
        alone, counted = cpu_of_calls(plain, gradient, calls), cpu_of_calls(sampled, gradient, calls)
        unsampled.marks("table", gradient)
        passed = cpu(partial(unsampled.marks, "table", gradient), UNSAMPLED)
        if rank == 0:
            print(f"{kind:<8} a call {us(alone)}; not sampled +{passed * 1e6:.2f} us; ", end="")
            print(f"sampled +{us(counted - alone)}, of which marks {us(marks)}")
    dist.destroy_process_group()


def sparse(rank: int) -> torch.Tensor:
    ids = torch.randint(ROWS, (1, HELD), generator=torch.Generator().manual_seed(rank))
    return torch.sparse_coo_tensor(ids, torch.ones(HELD, WIDTH), (ROWS, WIDTH), check_invariants=False)


def dense(rank: int) -> torch.Tensor:
    return sparse(rank).to_dense()


def cpu_of_calls(state: ZencState, gradient: torch.Tensor, calls: int) -> float:
    """Return seconds of all threads of this rank in a call, each of which starts when all ranks are there."""
    rows = not gradient.is_sparse

    def call() -> None:
        state.average(gradient.clone(), "table", rows).wait()

    call()
    return cpu(call, calls)


def cpu(call: Callable[[], object], calls: int) -> float:
    started = time.process_time()
    for _ in range(calls):
        call()
    return (time.process_time() - started) / calls


def us(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} us"


if __name__ == "__main__":
    main()
