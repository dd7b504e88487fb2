"""Training on slow links: DDP, torch's PowerSGD, DiLoCo and SparseLoCo, among 4 hosts that one machine plays.

python -m benchmarks.slow_links [--seconds 20] [--rate 100mbit] [--json benchmarks/results/slow_links.json]

Each way trains the character model of the convergence page for equally many seconds, one after the other, from equal
weights and with the same inner optimizer, AdamW. The clock of rank 0 stands still while it is measured. Bits are for
each character of held-out text; bytes are those of the busiest link, packets and all, with the start of the job.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import zenc
from benchmarks.convergence.characters import SIZES, batches, loss_of, new_model, text, windows
from benchmarks.pages import DOCS, RESULTS, Part, new_parser, table_of
from zenc.lab.cluster import EmulatedCluster
from zenc.lab.ranks import run_ranks

MARKS = "<!-- results of benchmarks/slow_links.py -->", "<!-- end of results -->"
PART = Part(DOCS / "guides" / "slow_links.md", *MARKS, RESULTS / "slow_links.json")
HOSTS, HELD_OUT, RATE = 4, 4096, 0.001
WAYS = {"ddp": 4, "powersgd": 20, "diloco": 100, "streaming_diloco": 100, "sparse_loco": 60}
"""Ways -> the steps after which rank 0 measures, and all decide whether to go on: whole rounds of averages."""
NAMES = {"ddp": "DDP", "powersgd": "DDP with `powerSGD_hook`, rank 4"}


def prepared(way: str, model: nn.Module) -> tuple[nn.Module, Callable[[torch.optim.Optimizer], object]]:
    """Return what to train, and what to do with its optimizer."""
    if way not in ("ddp", "powersgd"):
        averager = zenc.Averager(model, way)
        return model, averager.follow
    # with several buckets its hook makes all-reduces in another order on each rank, and gloo fails
    ddp = DistributedDataParallel(model, bucket_cap_mb=100 if way == "powersgd" else None)
    if way == "powersgd":
        state = PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2, warm_start=True)
        ddp.register_comm_hook(state, powerSGD_hook)
    return ddp, lambda optimizer: None


def worker(way: str, seconds: float) -> None:
    """Train as one rank; rank 0 prints the seconds, steps and bits so far as JSON."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model, rank = new_model(SIZES, 0), dist.get_rank()
    trained, follow = prepared(way, model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    follow(optimizer)
    drawn, spent, steps, points = batches(0, rank), 0.0, 0, [(0.0, 0, bits(model))]
    going = torch.ones(1)
    while going.item():
        dist.barrier()
        start = time.monotonic()
        for _ in range(WAYS[way]):
            optimizer.zero_grad()
            batch = windows(text().train, SIZES.batch, SIZES.context, drawn)
            torch.autograd.backward(loss_of(trained, batch))
            optimizer.step()
        spent, steps = spent + time.monotonic() - start, steps + WAYS[way]
        points += [(spent, steps, bits(model))] if rank == 0 else []
        going.fill_(spent < seconds)
        dist.broadcast(going, 0)
    if rank == 0:
        print(json.dumps({"points": points}), flush=True)
    dist.destroy_process_group()


def bits(model: nn.Module) -> float:
    """Return the bits a character on held-out text, the same in all runs."""
    batch = windows(text().held_out, HELD_OUT, SIZES.context, torch.Generator().manual_seed(0))
    with torch.no_grad():
        return float(loss_of(model, batch)) / math.log(2)


def measured(way: str, seconds: float, rate: str) -> dict[str, Any]:
    """Return the points of ``way``, and the bytes that the busiest link carried each way; exits if a rank fails."""
    said: list[str] = []
    script = ["-m", "benchmarks.slow_links", "--worker", way, "--seconds", str(seconds)]
    found = run_ranks(EmulatedCluster(HOSTS, rate), script, 1, lambda rank, line: said.append(line))
    if found.status:
        sys.exit("\n".join(said))
    points = next(json.loads(line)["points"] for line in said if line.startswith('{"points"'))
    return {"way": way, "points": points, "bytes": max(max(each) for each in found.carried)}


def shown(of: dict[str, Any]) -> str:
    """Return what was measured as a table in Markdown; DDP comes first, whose last loss is the goal of the others."""
    columns = (
        ("way", "{name}"),
        ("steps a second", "{pace:.1f}"),
        ("kB a step of a link", "{kB:,.1f}"),
        (f"bits after {of['seconds']:g} s", "{last:.3f}"),
        ("seconds to DDP's bits", "{reached}"),
    )
    rows, goal = [], of["rows"][0]["points"][-1][2]
    for row in of["rows"]:
        spent, steps, last = row["points"][-1]
        reached = next((f"{point[0]:.1f}" for point in row["points"] if point[2] <= goal), "not reached")
        name = NAMES.get(row["way"], f"`{row['way']}`")
        figures = {"pace": steps / spent, "kB": row["bytes"] / steps / 1e3, "last": last}
        rows.append({"name": name, **figures, "reached": reached})
    return table_of(rows, columns, 1)


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--worker", metavar="WAY", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.worker:
        return worker(options.worker, options.seconds)
    rows = [measured(way, options.seconds, options.rate) for way in WAYS]
    found = {"hosts": HOSTS, "rate": options.rate, "seconds": options.seconds, "rows": rows}
    print(PART.keep(options.json, found, shown(found)))


if __name__ == "__main__":
    main()
