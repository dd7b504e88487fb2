"""Ranks of a training script on the hosts of a cluster, started as torchrun would; their output line by line.

Each rank has two threads, one for its lines and one for its end, and both put what they see into one queue, so that the
first rank that failed is the one that ended first.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeAlias

from zenc.lab.cluster import EmulatedCluster

PORT = 29500
"""A port of rank 0: in a network of its own every one is free."""
GRACE = 3.0
"""Seconds that the others have to end by themselves once a rank has failed, for what they say of it."""
INTERRUPTED = 130

Events: TypeAlias = "SimpleQueue[tuple[int, str | int]]"
"""Ranks with a line that they wrote, or with their status when they ended."""
Show: TypeAlias = Callable[[int, str], None]
"""Called with a rank and a line of it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """End of a run: its seconds, bytes each host has ``(sent, received)``, status, and the first rank that failed."""

    seconds: float
    carried: list[tuple[int, int]]
    status: int
    failed: int | None


def variables(rank: int, ranks: int, ranks_per_host: int, address: str, port: int, interface: str) -> dict[str, str]:
    """Return the environment of the process of ``rank``: this one's, and the variables of torchrun."""
    return {
        "OMP_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "2",  # errors: it also warns of hosts without a name, which those of a cluster are
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(rank % ranks_per_host),
        "LOCAL_WORLD_SIZE": str(ranks_per_host),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": interface,
    }


def run_ranks(cluster: EmulatedCluster, script: Sequence[str], ranks_per_host: int, show: Show) -> Outcome:
    """Run ``script``, arguments of Python, as all ranks on ``cluster``, and ``show`` each line that a rank writes.

    It makes the cluster, and ends it with all that runs there: when all ranks have ended, soon after one has failed, or
    when this process is interrupted. Raises NetworkError where the cluster can't be made.
    """
    size, threads = cluster.size * ranks_per_host, list[Thread]()
    events: Events = SimpleQueue()
    with cluster:
        began = time.monotonic()
        try:
            for rank in range(size):
                given = variables(rank, size, ranks_per_host, cluster.address(0), PORT, "eth0")
                process = subprocess.Popen(
                    cluster.command(rank // ranks_per_host, [sys.executable, "-u", *script]),
                    env=given,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="backslashreplace",
                    start_new_session=True,  # an interrupt from the keyboard is for this process, which ends the ranks
                )
                threads += [Thread(target=follow, args=(rank, process, events)) for follow in (_read, _await)]
                for thread in threads[-2:]:
                    thread.start()
            failed, status = _first_failure(events, size, show)
        except KeyboardInterrupt:
            failed, status = None, INTERRUPTED
        seconds, carried = time.monotonic() - began, cluster.carried()
    for thread in threads:
        thread.join()
    while not events.empty():
        rank, event = events.get()
        if isinstance(event, str):
            show(rank, event)
    return Outcome(seconds, carried, status, failed)


def _read(rank: int, process: subprocess.Popen[str], events: Events) -> None:
    assert process.stdout
    with process.stdout as lines:
        for line in lines:
            events.put((rank, line.rstrip("\n")))


def _await(rank: int, process: subprocess.Popen[str], events: Events) -> None:
    status = process.wait()
    events.put((rank, status if status >= 0 else 128 - status))  # as a shell says that a signal ended it


def _first_failure(events: Events, running: int, show: Show) -> tuple[int | None, int]:
    """Return the first rank to fail and its status, when all have ended or had ``GRACE``; None and 0 for no rank."""
    failed, status, deadline = None, 0, float("inf")
    while running:
        try:
            rank, event = events.get(timeout=None if failed is None else max(0.0, deadline - time.monotonic()))
        except Empty:
            break
        if isinstance(event, str):
            show(rank, event)
            continue
        running -= 1
        if event and failed is None:
            failed, status, deadline = rank, event, time.monotonic() + GRACE
    return failed, status
