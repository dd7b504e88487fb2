"""Workers of a run, one for each rank, on the hosts of a cluster or on loopback; their records are collected.

``Others`` says whether the machine did anything else meanwhile.
"""

import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import IO, Any

from benchmarks.lab.settings import LabError, Run
from benchmarks.pages import ROOT
from zenc.lab.cluster import EmulatedCluster
from zenc.lab.ranks import PORT, variables
from zenc.lab.routed import RoutedCluster
from zenc.topology.load import load_topology

Words = Sequence[str]
WORKER = ("benchmarks.lab.worker",)


class Others:
    """Clock of the processor time that other programs take of this machine."""

    def __init__(self) -> None:
        self.started, self.before = time.monotonic(), busy_seconds() - own_seconds()

    def share(self) -> float:
        """Return the share of all cores that others have used; ranks count as others until they have ended."""
        used = busy_seconds() - own_seconds() - self.before
        return max(0.0, used) / (time.monotonic() - self.started) / (os.cpu_count() or 1)


def busy_seconds() -> float:
    """Return the seconds of all cores since the machine started: in any programs, and taken by a hypervisor.

    The kernel's own time is left out: what the packets of the network take belongs to no process.
    """
    user, nice, *_, steal = (int(word) for word in Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Return the seconds in this program, and in those that it has started, and waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime for each in used)


def launch(
    settings: Run[Any], seconds: float, worker: Words = WORKER, shared_memory: bool = False
) -> list[dict[str, Any]]:
    """Return the records of all ranks, by rank. Each runs ``worker``, which is a module and its arguments.

    On loopback ranks exchange over it, as hosts do, unless they may use ``shared_memory``.
    Raises LabError when a rank fails, or when they take more than ``seconds``.
    """
    with network_of(settings) as cluster, ExitStack() as files:
        records = [files.enter_context(tempfile.TemporaryFile()) for _ in range(settings.ranks)]
        port = PORT if cluster else free_port()
        way = {"ZENC_SHARED_MEMORY": str(int(shared_memory and cluster is None))}
        ranks = [start(rank, settings, worker, port, record, cluster, way) for rank, record in enumerate(records)]
        try:
            wait(ranks, seconds)
        finally:
            for process in ranks:
                process.kill()
                process.wait()
        return [last_line(record) for record in records]


def network_of(settings: Run[Any]) -> AbstractContextManager[EmulatedCluster | None]:
    """Return the network of a run: a context that is None on loopback."""
    if settings.topology:
        return RoutedCluster(load_topology(settings.topology), settings.burst, settings.queue)
    shape = settings.ranks, settings.rate, settings.burst, settings.queue
    return EmulatedCluster(*shape) if settings.rate else nullcontext()


def start(
    rank: int,
    settings: Run[Any],
    worker: Words,
    port: int,
    record: IO[bytes],
    cluster: EmulatedCluster | None,
    variables: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", *worker]
    environment = {**environment_of(rank, settings.ranks, port, cluster), **variables}
    command = cluster.command(rank, words) if cluster else words
    with tempfile.TemporaryFile() as given:
        given.write(json.dumps(settings.to_json()).encode())
        given.seek(0)
        # in a session of its own: an interrupt from the keyboard is for the lab, which then ends the ranks
        return subprocess.Popen(command, stdin=given, stdout=record, cwd=ROOT, env=environment, start_new_session=True)


def environment_of(rank: int, ranks: int, port: int, cluster: EmulatedCluster | None) -> dict[str, str]:
    """Return the variables of the process of ``rank``: those of torchrun, and one thread."""
    own = (1, EmulatedCluster.address(0), port, "eth0") if cluster else (ranks, "127.0.0.1", port, "lo")
    return {**variables(rank, ranks, *own), "OMP_NUM_THREADS": "1"}


def last_line(record: IO[bytes]) -> dict[str, Any]:
    """Return the last line that a worker printed; the libraries in it may have printed before."""
    record.seek(0)
    found: dict[str, Any] = json.loads(record.read().splitlines()[-1])
    return found


def wait(ranks: list[subprocess.Popen[bytes]], seconds: float) -> None:
    """Wait until all have ended well; the first that does not ends the wait."""
    deadline = time.monotonic() + seconds
    while any(process.poll() is None for process in ranks):
        failed(ranks)
        if time.monotonic() > deadline:
            raise LabError(f"the ranks took more than {seconds:g} s; take fewer --rounds, or more with --limit")
        time.sleep(0.05)
    failed(ranks)


def failed(ranks: list[subprocess.Popen[bytes]]) -> None:
    for rank, process in enumerate(ranks):
        if process.poll():
            raise LabError(f"rank {rank} ended with {process.returncode}; what it said stands above")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
