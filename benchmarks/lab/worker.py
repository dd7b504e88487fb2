"""A rank's process, which calls every peer in turns, and records the time of each call.

    Record = rank x machine x (peer -> Sample*)
    Sample = round, started, ended, processor seconds, bytes of the interface and bytes by the peer's own count

``benchmarks.lab.launch`` starts it with RANK, WORLD_SIZE and MASTER_* set and the settings at standard input, and reads
the record, as JSON, from the last line that it prints.
"""

import ctypes
import json
import os
import platform
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.lab.peers import Peer, is_dense, peer
from benchmarks.lab.settings import Run, Settings
from benchmarks.lab.workloads import Expected, gradient_of, units_of

SECONDS = 120
"""The most seconds that a rank waits for another one."""


def main() -> None:
    work(lambda given: measured(Settings.from_json(given)))


def work(measure: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Run as a rank: ``measure`` makes of the settings, JSON at standard input, the record that is printed as JSON."""
    end_with_parent()
    given = json.load(sys.stdin)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=SECONDS))
    record = measure(given)
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps(record))


def measured(settings: Settings, made: Callable[[str, torch.Tensor], Peer] = peer) -> dict[str, Any]:
    """Return the record of this rank, whose peers are ``made``; raises LabError where a sum is wrong."""
    rank = dist.get_rank()
    of = units_of(settings.workload, settings.ranks, settings.seed)
    gradient, expected = gradient_of(settings.workload, of, rank, settings.seed), Expected(of, settings.seed)
    unchecked = set(settings.peers)

    def check_first(result: torch.Tensor, name: str) -> None:
        if name in unchecked:
            unchecked.remove(name)
            expected.check(result, name)

    return record_of(settings, {name: made(name, gradient) for name in settings.peers}, check_first)


def record_of(
    settings: Run[Any], peers: Mapping[str, Peer], see: Callable[[torch.Tensor, str], None] = lambda result, name: None
) -> dict[str, Any]:
    """Return the record of this rank, whose ``peers`` take turns; ``see`` is called with each result.

    Rank 0 prints a line a round.
    """
    samples: dict[str, list[dict[str, Any]]] = {name: [] for name in peers}
    for each in peers.values():
        each.settle()
    for number, of_round in groupby(turns(settings), itemgetter(0)):
        said = []
        for _, name in of_round:
            result, sample = timed(peers[name])
            see(result, name)
            samples[name].append({"round": number, **sample})
            said.append(f"{name} {1e3 * (sample['ended'] - sample['started']):.1f} ms")
        if not dist.get_rank():
            print(f"round {number + 1:3} of {settings.rounds}: {', '.join(said)}", file=sys.stderr)
    return {"rank": dist.get_rank(), "machine": machine(), "samples": samples}


def turns(settings: Run[Any]) -> Iterator[tuple[int, str]]:
    """Yield round and peer, alike on all ranks: a new order every round; below zero rounds warm up, dense ones once."""
    order, chance = list(settings.peers), random.Random(settings.seed)
    for number in range(-settings.warm_up, settings.rounds):
        chance.shuffle(order)
        for name in order:
            if not is_dense(name) or -1 <= number < settings.dense_rounds:
                yield number, name


def timed(peer: Peer) -> tuple[torch.Tensor, dict[str, Any]]:
    """Return one call's result and sample from a barrier on.

    Bytes of the interface include the barrier after the call, by which all have left.
    """
    peer.prepare()
    dist.barrier()
    dist.barrier()  # the first waits for the slowest, the second lets all go within a round trip
    before, processor = interface_bytes(), processor_seconds()
    started = time.monotonic()
    result = peer.call()
    ended = time.monotonic()
    processor = processor_seconds() - processor
    dist.barrier()
    after, counted = interface_bytes(), peer.counted()
    peer.finish()
    return result, {
        "started": started,
        "ended": ended,
        "processor": processor,
        "interface": [b - a for a, b in zip(before, after, strict=True)] if before and after else None,
        "counted": counted,
    }


def processor_seconds() -> float:
    """Return user and system time of this process, with all its threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def interface_bytes() -> tuple[int, int] | None:
    """Return bytes sent and received by this host; None on loopback, which all ranks share."""
    device = os.environ["GLOO_SOCKET_IFNAME"]
    if device == "lo":
        return None
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == device:
            counts = numbers.split()
            return int(counts[8]), int(counts[0])
    raise OSError(f"there is no interface {device}")


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def end_with_parent() -> None:
    """End this process with its parent, so that a lab that is killed leaves no rank behind."""
    parent_death_signal = 1
    ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)


if __name__ == "__main__":
    main()
