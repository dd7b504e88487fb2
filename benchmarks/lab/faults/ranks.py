"""Ranks on the hosts of a cluster that do what they are told, one order after another."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.lab.launch import environment_of
from benchmarks.lab.settings import ROOT
from zenc.lab.cluster import EmulatedCluster
from zenc.lab.ranks import PORT

LIMIT = 180.0
"""Seconds in which a rank has to answer; one that does not is killed, and counts as dead."""


class OrderedRanks:
    """Processes of ranks, one on each host; ``processes`` are their numbers as the lab sees them."""

    def __init__(self, cluster: EmulatedCluster, ranks: int, variables: dict[str, str], generation: int) -> None:
        self._started = [
            subprocess.Popen(
                cluster.command(rank, [sys.executable, "-m", "benchmarks.lab.faults.worker"]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
                env={**environment_of(rank, ranks, PORT + generation, cluster), **variables},
                text=True,
                start_new_session=True,  # an interrupt from the keyboard is for the lab, which then ends the ranks
            )
            for rank in range(ranks)
        ]
        self.processes = [int(answer["process"]) if answer else 0 for answer in self.answers(range(ranks))]

    def tell(self, order: dict[str, Any]) -> None:
        """Give ``order`` to all ranks."""
        for process in self._started:
            assert process.stdin
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()

    def answers(self, ranks: Sequence[int]) -> list[dict[str, Any] | None]:
        """Return the answers of ``ranks``; None of one that is dead."""
        with self._in_time():
            return [self._answer(rank) for rank in ranks]

    def wake(self) -> None:
        """Let nsenter, which waits for each rank, go on: it stops when its child is stopped, and holds its output."""
        for process in self._started:
            process.send_signal(signal.SIGCONT)

    def _answer(self, rank: int) -> dict[str, Any] | None:
        lines = self._started[rank].stdout
        assert lines
        line = lines.readline()
        return json.loads(line) if line else None

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """Kill all ranks if the block takes longer than ``LIMIT`` seconds, so that nobody waits for them any more."""
        timer = threading.Timer(LIMIT, self._kill)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _kill(self) -> None:
        for process in self._started:
            process.kill()

    def close(self) -> None:
        """End all ranks."""
        self._kill()
        for process in self._started:
            process.communicate()
