"""What a call costs when there is nothing to sum: zenc beside gloo, interleaved in one run.

    python benchmarks/empty_call.py [--ranks 4] [--rounds 400] [--json FILE]

Three things take turns in every round, each from a barrier on, timed on rank 0:
    gloo's messages    the packets of an empty zenc call, sent and received by gloo alone
    gloo's all-reduce  torch.distributed.all_reduce of the same empty sparse tensor, which is what DDP does
    zenc               Collective.all_reduce of it with schemes/balanced.zen
    zenc, async        the same with async_op=True and wait(), which is how the DDP hook calls it
Medians, and the median of the differences in each round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import zenc

ROWS, WIDTH = 10_000, 64
PACKET_BYTES = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    mp.spawn(measure, (options.ranks, options.rounds, options.json), nprocs=options.ranks)


def measure(rank: int, size: int, rounds: int, path: str | None) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29613", rank=rank, world_size=size)
    collective = zenc.load("balanced")
    empty = torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.long), torch.zeros(0, WIDTH), (ROWS, WIDTH))
    calls: dict[str, Callable[[], object]] = {
        "gloo's messages": lambda: messages(rank, size),
        "gloo's all-reduce": lambda: dist.all_reduce(empty.clone()),
        "zenc": lambda: collective.all_reduce(empty, "mean"),
        "zenc, async": lambda: collective.all_reduce(empty, "mean", async_op=True).wait(),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            dist.barrier()
            started = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - started) * 1e6)
    if rank == 0:
        report({name: values[rounds // 10 :] for name, values in times.items()}, size, path)
    dist.destroy_process_group()


def messages(rank: int, size: int) -> None:
    """Push and pull of ``balanced``: to and from every peer, twice, as small as empty ones are."""
    for tag in (1, 2):
        peers = [peer for peer in range(size) if peer != rank]
        packets = [torch.empty(PACKET_BYTES, dtype=torch.uint8) for _ in peers]
        waiting = [dist.irecv(packet, peer, tag=tag) for packet, peer in zip(packets, peers, strict=True)]
        waiting += [dist.isend(torch.zeros(PACKET_BYTES, dtype=torch.uint8), peer, tag=tag) for peer in peers]
        for work in waiting:
            work.wait()


def report(times: dict[str, list[float]], size: int, path: str | None) -> None:
    rows = {
        name: {
            "median_us": statistics.median(values),
            "over_messages_us": statistics.median(
                a - b for a, b in zip(values, times["gloo's messages"], strict=True)
            ),
        }
        for name, values in times.items()
    }
    print(f"{size} ranks, empty gradient of {ROWS} x {WIDTH}, torch {torch.__version__}")
    print(f"{'':20}{'median, us':>12}{'beyond gloo''s messages, us':>30}")
    for name, row in rows.items():
        print(f"{name:20}{row['median_us']:12.0f}{row['over_messages_us']:30.0f}")
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"ranks": size, "rows": rows}, file, indent=2)


if __name__ == "__main__":
    main()
