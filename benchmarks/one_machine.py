"""A sparse all-reduce among the processes of one machine: torch's over loopback beside zenc's, both ways, in turns.

    python -m benchmarks.one_machine [--ranks 2 4] [--json FILE]

Rows at 2 % of 200,000 x 64, float32, Zipf 1.05. In every round each peer sums the same gradients once, from a barrier:
    torch              torch.distributed.all_reduce of the sparse tensor, and ``coalesce``
    SCHEME             a scheme of zenc through shared memory
    SCHEME, wire       the same over loopback
A call takes from when the first rank begins until the last has the sum. ``ratio``: the median over the rounds of
torch's time over the peer's. ``processor``: milliseconds of a rank and call, gloo's threads included. Sums are checked
once against float64. ``others``: the share of the cores that other programs used; above a few percent times say
little.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import zenc
from benchmarks.lab.launch import Others, free_port
from benchmarks.lab.workloads import KINDS, Expected, sparse_gradient, units_of
from benchmarks.pages import DOCS, LEFT, RESULTS, RIGHT, Part, new_parser, table

PAGE = DOCS / "internals" / "performance.md"
MARKS = "<!-- one machine: written by benchmarks/one_machine.py -->", "<!-- end of one machine -->"
PART = Part(PAGE, *MARKS, RESULTS / "one_machine.json")
SCHEMES = ("agsparse", "balanced", "holders")
TORCH, WIRE = "torch", ", wire"
PEERS = (TORCH, *SCHEMES, *(scheme + WIRE for scheme in SCHEMES))
WARM = 10
"""Rounds that are not counted."""
SEED = 1
Sample = tuple[float, float, float]
"""Seconds of a rank's task: its begin and its end on the clock, and its processor time."""
Samples = Sequence[dict[str, list[Sample]]]
Tasks = Callable[[int, int], dict[str, Callable[[], object]]]
"""Function from a rank and the number of ranks to what it does, by name."""


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    rows = [row for ranks in options.ranks for row in measured(ranks, options.rounds)]
    found = {"cores": os.cpu_count(), "torch": torch.__version__, "rounds": options.rounds, "rows": rows}
    print(PART.keep(options.json, found, shown(found)))


def measured(ranks: int, rounds: int) -> list[dict[str, Any]]:
    """Return a row for each peer."""
    samples, others = spawned(ranks, rounds, WARM, tasks_of)
    return rows_of(ranks, samples, others)


def spawned(ranks: int, rounds: int, warm: int, made: Tasks) -> tuple[Samples, float]:
    """Return the samples of the tasks ``made`` by ranks on loopback, and the share of cores that others used."""
    address, others, told = f"tcp://127.0.0.1:{free_port()}", Others(), mp.get_context("spawn").SimpleQueue()
    processes = mp.spawn(_rank_of, (ranks, rounds, warm, address, told, made), nprocs=ranks, join=False)
    samples = told.get()
    processes.join()
    return samples, round(others.share(), 3)


def _rank_of(rank: int, size: int, rounds: int, warm: int, address: str, told: Any, made: Tasks) -> None:
    """Run the tasks of this rank in turns; rank 0 puts the samples of all ranks into the queue ``told``."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=size)
    tasks = made(rank, size)
    samples: dict[str, list[Sample]] = {name: [] for name in tasks}
    for number in range(warm + rounds):
        for name, task in tasks.items():
            getattr(task, "prepare", lambda: None)()
            dist.barrier()
            processor, began = time.process_time(), time.perf_counter()
            sums = task()
            ended, processor = time.perf_counter(), time.process_time() - processor
            if number >= warm:
                samples[name].append((began, ended, processor))
            del sums
    of_ranks: list[Any] = [None] * size
    dist.all_gather_object(of_ranks, samples)
    if rank == 0:
        told.put(of_ranks)
    dist.barrier()
    dist.destroy_process_group()


def tasks_of(rank: int, size: int) -> dict[str, Callable[[], object]]:
    """Return the calls of a rank by name, each of which has been compared with the sum in float64."""
    of = units_of(KINDS["rows"], size, SEED)
    gradient = sparse_gradient(of, rank, SEED)
    tasks: dict[str, Callable[[], torch.Tensor]] = {TORCH: TorchSum(gradient)}
    for name in PEERS[1:]:
        collective = zenc.load(name.removesuffix(WIRE), shared_memory=not name.endswith(WIRE))
        tasks[name] = partial(collective.all_reduce, gradient)
    for name, task in tasks.items():
        total = task()
        if rank == 0:
            Expected(of, SEED).check(total, name)
    return dict(tasks)


class TorchSum:
    """The sum by torch, made in place and coalesced, as the result of zenc is."""

    def __init__(self, gradient: torch.Tensor) -> None:
        self.gradient = gradient
        self.prepare()

    def prepare(self) -> None:
        self.given = self.gradient.clone()

    def __call__(self) -> torch.Tensor:
        dist.all_reduce(self.given)
        return self.given.coalesce()


def rows_of(ranks: int, of_ranks: Samples, others: float) -> list[dict[str, Any]]:
    """Return medians and ratios of the ranks' samples."""
    times = {name: turns_of(of_ranks, name) for name in PEERS}
    rows = []
    for name in PEERS:
        ratios = [base / own for base, own in zip(times[TORCH], times[name], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        processor = statistics.median(sample[2] for of in of_ranks for sample in of[name])
        row = {"ms": statistics.median(times[name]) * 1e3, "processor": processor * 1e3, "ratio": middle}
        rounded = {key: round(value, 3) for key, value in row.items()}
        rows.append({"ranks": ranks, "peer": name, **rounded, "low": round(low, 2), "high": round(high, 2)})
        rows[-1]["others"] = others
    return rows


def turns_of(of_ranks: Samples, name: str) -> list[float]:
    """Return the seconds of each turn of a task, from when the first rank began until the last ended."""
    turns = zip(*(of[name] for of in of_ranks), strict=True)
    return [max(ended for _, ended, _ in turn) - min(began for began, _, _ in turn) for turn in turns]


def cells_of(row: dict[str, Any]) -> tuple[str, str, str]:
    """Return milliseconds, the ratio with its quartiles, and milliseconds of the processor."""
    return f"{row['ms']:.2f}", f"{row['ratio']:.1f} ({row['low']} to {row['high']})", f"{row['processor']:.2f}"


def shown(result: dict[str, Any]) -> str:
    """Return Markdown: a row for each peer, and three columns for each number of ranks."""
    rows = result["rows"]
    sizes = sorted({row["ranks"] for row in rows})
    heads = [f"{ranks} ranks: {what}" for ranks in sizes for what in ("ms", "torch / it", "processor, ms")]
    lines = []
    for name in PEERS:
        of = {row["ranks"]: cells_of(row) for row in rows if row["peer"] == name}
        lines.append([name, *(cell for ranks in sizes for cell in of[ranks])])
    said = ", ".join(f"{row['others']:.0%} among {row['ranks']} ranks" for row in rows if row["peer"] == TORCH)
    found = table(["", *heads], [LEFT, *[RIGHT] * len(heads)], lines)
    return f"{found}\n\nOther programs used this share of the cores meanwhile: {said}."


if __name__ == "__main__":
    main()
