"""Announced calls: the time for which a gradient is waited for, with and without index sets that travelled before.

    python -m benchmarks.announced [--ranks 4] [--rate 100mbit] [--computing 40] [--rounds 30] [--json FILE]

Hosts of the lab, or loopback without ``--rate``. Rows at 2 % of 200,000 x 64, float32, Zipf 1.05, by ``holders``. In a
step ids are known, then a rank computes for so many ms, and has its gradient. Computing is played by sleeping, as if it
was on an accelerator: so the announce has processors to itself. In every round steps take turns:
    usual        the call announces itself
    announced    ids are announced when they are known
    wrong        the same, and the last rank has announced a row too many
Exposed: from when the last rank has its gradient until the last one has the sum. Bytes are those of rank 0, of
announce and call together. Sums are compared, bit for bit, in every round.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import zenc
from benchmarks.lab.launch import launch
from benchmarks.lab.settings import Settings, Workload
from benchmarks.lab.worker import work
from benchmarks.lab.workloads import KINDS, sparse_gradient, units_of
from benchmarks.pages import new_parser, save_json, table_of

WAYS = ("usual", "announced", "wrong")
WARM = 5
"""Rounds that are not counted."""
WORKER = "--worker"


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rate", default="", help="of every link, each way, as tc takes it; default: loopback")
    parser.add_argument("--computing", type=float, default=40.0, help="ms from ids to the gradient")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    place = (options.ranks, options.rate, 70_000, "2mb", KINDS["rows"], WAYS, WAYS[0], options.rounds, 0, WARM, 1)
    worker = ("benchmarks.announced", WORKER, str(options.computing))
    records = launch(Settings(*place), 600.0, worker)
    found = {"ranks": options.ranks, "rate": options.rate, "computing_ms": options.computing, "rows": rows_of(records)}
    print(table(found))
    save_json(options.json, found)


def measured(given: dict[str, Any], computing: float) -> dict[str, Any]:
    """Return for each way, round by round, when this rank had its gradient and its sum, and the bytes that it sent."""
    rank, size = dist.get_rank(), given["ranks"]
    gradient = sparse_gradient(units_of(Workload(**given["workload"]), size, given["seed"]), rank, given["seed"])
    collective = zenc.load("holders", deadline=60)
    right = gradient._indices()[0]
    absent = next(row for row in range(gradient.shape[0]) if row not in set(right.tolist()))
    ids = {"announced": right, "wrong": right if rank < size - 1 else torch.cat((right, torch.tensor([absent])))}
    samples: dict[str, list[tuple[float, float, int]]] = {way: [] for way in WAYS}
    for number in range(WARM + given["rounds"]):
        sums = []
        for way in WAYS:
            dist.barrier()
            announcement = collective.announce(ids[way], gradient.shape) if way in ids else None
            time.sleep(computing / 1e3)
            began = time.perf_counter()
            sums.append(collective.all_reduce(gradient, announced=announcement))
            samples[way].append((began, time.perf_counter(), collective.stats["bytes_sent"]))
            assert collective.stats["made_again"] == (way == "wrong")
        assert all(torch.equal(each._values(), sums[0]._values()) for each in sums), f"round {number}"
    return {way: of[WARM:] for way, of in samples.items()}


def rows_of(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return medians of the ranks' records, and each way's share of the usual time, round by round."""
    turns = {way: list(zip(*(record[way] for record in records), strict=True)) for way in WAYS}
    times = {way: [exposed(turn) for turn in turns[way]] for way in WAYS}
    rows = []
    for way in WAYS:
        low, middle, high = statistics.quantiles(
            [own / usual for own, usual in zip(times[way], times["usual"], strict=True)], n=4
        )
        sent = int(statistics.median(sent for _, _, sent in records[0][way]))
        share = {"share": round(middle, 3), "low": round(low, 3), "high": round(high, 3)}
        rows.append({"way": way, "exposed_ms": round(statistics.median(times[way]) * 1e3, 2), **share, "bytes": sent})
    return rows


def exposed(turn: Sequence[tuple[float, float, int]]) -> float:
    """Return the seconds from when the last rank of a ``turn`` began until the last one ended."""
    return max(ended for _, ended, _ in turn) - max(began for began, _, _ in turn)


def table(found: dict[str, Any]) -> str:
    """Return ``found`` as a table in Markdown."""
    columns = (
        (f"{found['ranks']} ranks, {found['rate'] or 'loopback'}", "{way}"),
        ("exposed, ms", "{exposed_ms:.2f}"),
        ("of the usual", "{share:.2f} ({low:.2f} to {high:.2f})"),
        ("bytes of rank 0", "{bytes:,}"),
    )
    return table_of(found["rows"], columns, 1)


if __name__ == "__main__":
    if WORKER in sys.argv:
        work(lambda given: measured(given, float(sys.argv[-1])))
    else:
        main()
