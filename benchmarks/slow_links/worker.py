"""A rank that trains by one way: python -m benchmarks.slow_links.worker WAY TEXT SEED GOAL SECONDS STEPS.

TEXT is a file of the text. The clock stands still while rank 0 looks at held-out text. Rank 0 prints
``{"points": Point*, "processor": seconds a step}``.

Point = seconds  steps  bytes  bits             # so far; of the slowest rank, of the busiest; a character, of rank 0
"""

import json
import math
import sys
import time

import torch
import torch.distributed as dist

from benchmarks.convergence.characters import SIZES, Text, batches, bits_of, loss_of, new_model, windows
from benchmarks.lab.worker import interface_bytes
from benchmarks.slow_links.ways import BY_NAME, prepared


def train(name: str, of: Text, seed: int, goal: float, seconds: float, steps: int) -> None:
    """Train until rank 0 has the ``goal`` in bits, ``seconds`` have passed, or all ``steps`` are made."""
    way, rank, model = BY_NAME[name], dist.get_rank(), new_model(SIZES, seed, of.symbols)
    trained, optimizer = prepared(way, model)
    drawn, spent, processor, made = batches(seed, rank), 0.0, 0.0, 0
    points, found = [(0.0, 0, 0, bits_of(model, of, SIZES.context))], torch.zeros(3, dtype=torch.float64)
    before = max(interface_bytes() or (0,))
    while points[-1][3] > goal and points[-1][0] < seconds and made < steps:
        dist.barrier()
        start, busy = time.monotonic(), time.process_time()
        for _ in range(way.every):
            optimizer.zero_grad()
            torch.autograd.backward(loss_of(trained, windows(of.train, SIZES.batch, SIZES.context, drawn)))
            optimizer.step()
        spent, processor = spent + time.monotonic() - start, processor + time.process_time() - busy
        made += way.every
        bits = bits_of(model, of, SIZES.context) if rank == 0 else 0.0
        assert math.isfinite(bits), f"{name} diverges"
        found[:] = torch.tensor([spent, max(interface_bytes() or (0,)) - before, bits])
        dist.all_reduce(found, dist.ReduceOp.MAX)
        points.append((float(found[0]), made, int(found[1]), float(found[2])))
    if rank == 0:
        print(json.dumps({"points": points, "processor": processor / made}), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    name, file, *given = sys.argv[1:]
    train(name, Text(*torch.load(file)), int(given[0]), float(given[1]), float(given[2]), int(given[3]))
    dist.destroy_process_group()
