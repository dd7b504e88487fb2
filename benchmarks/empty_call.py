"""The cost of a call of ``balanced`` when there is nothing to sum, without its messages.

    OMP_NUM_THREADS=1 python -m benchmarks.empty_call [--ranks 4] [--json FILE]

Packets that were recorded are received again in one process (``benchmarks/recorded.py``): what is left is all that zenc
adds to messages. As it is; and with async_op=True and wait(), as the DDP hook calls it, with the two changes of thread
that gloo's own all-reduce has as well. What those cost gloo shows in its all-reduce of the same tensor in a group of
one rank, which sends nothing. Medians over 200 batches of 20 calls, which take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
from torch.distributed import HashStore, ProcessGroupGloo

from benchmarks.recorded import RecordedCall

ROWS, WIDTH = 10_000, 64
BATCHES, CALLS = 200, 20


def calls_of(size: int) -> dict[str, Callable[[], object]]:
    """Return the calls of rank 0 among ``size`` by name, all of them the one call whose packets were recorded."""
    indices, values = torch.zeros(1, 0, dtype=torch.long), torch.zeros(0, WIDTH)
    empty = torch.sparse_coo_tensor(indices, values, (ROWS, WIDTH), check_invariants=False)
    collective = RecordedCall([empty] * size).collective
    alone = ProcessGroupGloo(HashStore(), 0, 1, timedelta(seconds=60))
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
    return {name: statistics.median(times) for name, times in batches.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    rows = per_call(calls_of(options.ranks))
    print(f"{options.ranks} ranks, empty gradient of {ROWS} x {WIDTH}, torch {torch.__version__}; us without messages")
    for name, took in rows.items():
        print(f"{name:20}{took:8.0f}")
    if options.json:
        found = {"ranks": options.ranks, "microseconds": rows}
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
