"""A rank's process, which loads schemes and makes calls as it is told; orders and answers are lines of JSON.

    {"load": scheme} ─▶ {}        {"calls": count} ─▶ Record        # after {"process": id}

A Record has the calls that were summed well, those that were not, the slowest, the error that ended them, and what TCP
did.
"""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import zenc
from benchmarks.lab.faults.disturbances import DEADLINE
from benchmarks.lab.worker import end_with_parent
from zenc.runtime.call.collective import Collective

UNITS, WIDTH, HELD = 4096, 16, 400
PACE = 0.04
"""Seconds between calls, in which a training step would compute."""
COUNTED = {
    "retransmitted": ("RetransSegs",),
    "doubled": ("TCPDSACKRecv", "TCPDSACKOfoRecv"),
    "overtaken": ("TCPSACKReorder", "TCPTSReorder", "TCPRenoReorder"),
}
"""Counters of the kernel's TCP of which a record has the sum."""


def main() -> None:
    end_with_parent()
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)  # libraries may print
        torch.set_num_threads(1)
        dist.init_process_group("gloo", timeout=timedelta(seconds=DEADLINE))
        answers.write(json.dumps({"process": process_outside()}) + "\n")
        rank = RankOnTrial()
        for line in sys.stdin:
            answers.write(json.dumps(rank.answer(json.loads(line))) + "\n")
    os._exit(0)  # a group that has failed would be torn down slowly


def process_outside() -> int:
    """Return the number of this process as the lab sees it."""
    return int(Path("/proc/self/stat").read_text().split()[0])


class RankOnTrial:
    """A rank with the collective that it was told to load."""

    collective: Collective

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        if "load" in order:
            self.collective = zenc.load(order["load"], deadline=DEADLINE)
            return self.record(1)
        return self.record(order["calls"])

    def record(self, calls: int) -> dict[str, Any]:
        """Return the record of ``calls`` calls, or fewer where one failed."""
        before, slowest, well = tcp_counts(), 0.0, 0
        error, text, took = "", "", 0.0
        for number in range(calls):
            own, wanted = brought(number, self.collective)
            began = time.monotonic()
            try:
                found = self.collective.all_reduce(own)
            except zenc.ZencError as failure:
                error, text, took = failure.diagnostics[0].id, str(failure), time.monotonic() - began
                break
            slowest = max(slowest, time.monotonic() - began)
            well += torch.equal(found.to_dense(), wanted)
            time.sleep(PACE)
        tcp = {name: count - before[name] for name, count in tcp_counts().items()}
        made = {"made": number + (not error), "well": well, "slowest": slowest}
        return {**made, "error": error, "text": text, "error_seconds": took, "tcp": tcp}


def brought(call: int, collective: Collective) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this rank's gradient, dense for a dense scheme, and the exact sum of all, in whole numbers."""
    of_ranks = [gradient(call, rank) for rank in range(collective.size)]
    own = of_ranks[dist.get_rank()]
    is_dense = "dense" in collective.artifact.plan.scheme
    return own.to_dense() if is_dense else own, torch.stack([each.to_dense() for each in of_ranks]).sum(0)


def gradient(call: int, rank: int) -> torch.Tensor:
    """Return rows of a table [UNITS, WIDTH] float32, sparse COO."""
    chance = torch.Generator().manual_seed(call * 64 + rank)
    ids = torch.randint(UNITS, (1, HELD), generator=chance)
    values = torch.randint(-9, 10, (HELD, WIDTH), generator=chance).to(torch.float32)
    return torch.sparse_coo_tensor(ids, values, (UNITS, WIDTH), check_invariants=False)


def tcp_counts() -> dict[str, int]:
    """Return the counts of this host, since it has been there: see ``COUNTED``."""
    counts: dict[str, int] = {}
    for file in ("snmp", "netstat"):
        lines = [line.split() for line in Path("/proc/self/net", file).read_text().splitlines()]
        for names, values in zip(lines[::2], lines[1::2], strict=True):
            counts.update(zip(names[1:], map(int, values[1:]), strict=True))
    return {name: sum(counts.get(each, 0) for each in of) for name, of in COUNTED.items()}


if __name__ == "__main__":
    main()
