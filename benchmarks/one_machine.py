"""A sparse all-reduce among the processes of one machine: torch's over loopback beside zenc's, both ways, in turns.

    python -m benchmarks.one_machine [--ranks 2 4] [--realtime] [--json FILE]

Rows at 2 % of 200,000 x 64, float32, Zipf 1.05. In every round each peer sums the same gradients once, from a barrier:
    torch              torch.distributed.all_reduce of the sparse tensor, and ``coalesce``
    SCHEME             a scheme of zenc through shared memory
    SCHEME, wire       the same over loopback
A call takes from when the first rank begins until the last has the sum. ``ratio``: the median over the rounds of
torch's time over the peer's. ``processor``: milliseconds of a rank and call, gloo's threads included. Sums are checked
once against float64. ``others``: the share of the cores that other programs used; above a few percent times say
little, unless ranks have real-time priority (``--realtime``, as root), for which other programs wait.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import zenc
from benchmarks.lab.workloads import KINDS, Expected, sparse_gradient, units_of
from benchmarks.markdown import LEFT, RIGHT, between
from benchmarks.markdown import table as markdown_table

RESULTS = Path(__file__).parent / "results" / "one_machine.json"
"""Results that the page shows; written again, they change it."""
PAGE = Path(__file__).parents[1] / "docs" / "internals" / "performance.md"
BEGIN, END = "<!-- one machine: written by benchmarks/one_machine.py -->", "<!-- end of one machine -->"
SCHEMES = ("agsparse", "balanced", "holders")
TORCH, WIRE = "torch", ", wire"
PEERS = (TORCH, *SCHEMES, *(scheme + WIRE for scheme in SCHEMES))
WARM = 10
"""Rounds that are not counted."""
SEED = 1
Sample = tuple[float, float, float]
"""Seconds of a rank's call: its begin and its end on the clock, and its processor time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    rows = [row for ranks in options.ranks for row in measured(ranks, options.rounds, options.realtime)]
    print(table(rows))
    if options.json:
        found = {
            "cores": os.cpu_count(),
            "torch": torch.__version__,
            "rounds": options.rounds,
            "realtime": options.realtime,
        }
        options.json.write_text(json.dumps({**found, "rows": rows}, indent=1) + "\n", encoding="utf-8")
        if options.json.resolve() == RESULTS:
            PAGE.write_text(between(PAGE.read_text("utf-8"), table(rows), BEGIN, END), encoding="utf-8")


def measured(ranks: int, rounds: int, realtime: bool = False) -> list[dict[str, Any]]:
    """Return a row for each peer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    context, started, busy, own = mp.get_context("spawn"), time.monotonic(), busy_seconds(), os.times()
    told = context.SimpleQueue()
    processes = mp.spawn(rank_of, (ranks, rounds, realtime, address, told), nprocs=ranks, join=False)
    samples = told.get()
    processes.join()
    now = os.times()
    ours = sum(now[:4]) - sum(own[:4])
    others = max(0.0, busy_seconds() - busy - ours) / (time.monotonic() - started) / (os.cpu_count() or 1)
    return rows_of(ranks, samples, others)


def busy_seconds() -> float:
    """Return the seconds that all cores have worked so far."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, *interrupts = (int(word) for word in file.readline().split()[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def rank_of(rank: int, size: int, rounds: int, realtime: bool, address: str, told: Any) -> None:
    """Run the calls of this rank in turns; rank 0 puts the samples of all ranks into the queue ``told``."""
    torch.set_num_threads(1)
    if realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=size)
    of = units_of(KINDS["rows"], size, SEED)
    gradient, expected = sparse_gradient(of, rank, SEED), Expected(of, SEED) if rank == 0 else None
    calls = {name: call_of(name) for name in PEERS}
    samples: dict[str, list[Sample]] = {name: [] for name in PEERS}
    for number in range(WARM + rounds):
        for name, call in calls.items():
            given = gradient.clone() if name == TORCH else gradient
            dist.barrier()
            processor, began = time.process_time(), time.perf_counter()
            total = call(given)
            ended, processor = time.perf_counter(), time.process_time() - processor
            samples[name].append((began, ended, processor))
            if number == 0 and expected is not None:
                expected.check(total, name)
            del total
    of_ranks: list[Any] = [None] * size
    dist.all_gather_object(of_ranks, {name: found[WARM:] for name, found in samples.items()})
    if rank == 0:
        told.put(of_ranks)
    dist.barrier()
    dist.destroy_process_group()


def call_of(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function for the sum of a gradient over the ranks, by the peer ``name``."""
    if name == TORCH:
        return torch_sum
    return zenc.load(name.removesuffix(WIRE), shared_memory=not name.endswith(WIRE)).all_reduce


def torch_sum(gradient: torch.Tensor) -> torch.Tensor:
    """Return the sum in place, and coalesced, as the result of zenc is."""
    dist.all_reduce(gradient)
    return gradient.coalesce()


def rows_of(ranks: int, of_ranks: Sequence[dict[str, list[Sample]]], others: float) -> list[dict[str, Any]]:
    """Return medians and ratios of the ranks' samples."""
    times = {name: [seconds(turn) for turn in zip(*(of[name] for of in of_ranks), strict=True)] for name in PEERS}
    rows = []
    for name in PEERS:
        ratios = [base / own for base, own in zip(times[TORCH], times[name], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        processor = statistics.median(sample[2] for of in of_ranks for sample in of[name])
        row = {"ms": statistics.median(times[name]) * 1e3, "processor": processor * 1e3, "ratio": middle}
        rounded = {key: round(value, 3) for key, value in row.items()}
        rows.append({"ranks": ranks, "peer": name, **rounded, "low": round(low, 2), "high": round(high, 2)})
        rows[-1]["others"] = round(others, 3)
    return rows


def seconds(turn: Sequence[Sample]) -> float:
    """Return the seconds from when the first rank of a ``turn`` began until the last ended."""
    return max(ended for _, ended, _ in turn) - min(began for began, _, _ in turn)


def cells_of(row: dict[str, Any]) -> tuple[str, str, str]:
    """Return milliseconds, the ratio with its quartiles, and milliseconds of the processor."""
    return f"{row['ms']:.2f}", f"{row['ratio']:.1f} ({row['low']:.1f} to {row['high']:.1f})", f"{row['processor']:.2f}"


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return Markdown: a row for each peer, and three columns for each number of ranks."""
    sizes = sorted({row["ranks"] for row in rows})
    heads = [f"{ranks} ranks: {what}" for ranks in sizes for what in ("ms", "torch / it", "processor, ms")]
    lines = []
    for name in PEERS:
        cells = [
            cell
            for ranks in sizes
            for row in rows
            if row["ranks"] == ranks and row["peer"] == name
            for cell in (
                f"{row['ms']:.2f}",
                f"{row['ratio']:.1f} ({row['low']} to {row['high']})",
                f"{row['processor']:.2f}",
            )
        ]
        lines.append([name, *cells])
    said = ", ".join(f"{row['others']:.0%} among {row['ranks']} ranks" for row in rows if row["peer"] == TORCH)
    shown = markdown_table(["", *heads], [LEFT, *[RIGHT] * len(heads)], lines)
    return f"{shown}\n\nOther programs used this share of the cores meanwhile: {said}."


if __name__ == "__main__":
    main()
