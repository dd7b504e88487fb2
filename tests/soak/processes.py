"""Processes of a soak, by slot, and the mishaps that they suffer from outside."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import torch.distributed as dist

from tests.soak.rank import serve
from tests.soak.rounds import LASTING, MORTAL, SoakRound
from tests.support.forked import context


class SoakedProcesses:
    """Processes by slot, a store in which their groups meet, and pipes for their orders."""

    def __init__(self) -> None:
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.processes: dict[int, BaseProcess] = {}
        self.pipes: dict[int, Connection] = {}
        for slot in LASTING + MORTAL:
            self.start(slot)

    def start(self, slot: int) -> None:
        here, there = context().Pipe()
        arguments = (self._store.port, there, dict(os.environ))
        process = context().Process(target=serve, args=arguments, daemon=True)
        process.start()
        there.close()
        self.processes[slot], self.pipes[slot] = process, here

    def signal(self, slot: int, number: int) -> None:
        pid = self.processes[slot].pid
        assert pid is not None
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    def close(self) -> None:
        """End all processes, and kill those that do not end."""
        for pipe in self.pipes.values():
            with suppress(OSError):
                pipe.send(None)
        for process in self.processes.values():
            process.join(2.0)
            process.kill()
            process.join()

    def __enter__(self) -> SoakedProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Signals:
    """The signals by which the mishap of a round comes to its member; ``begin`` when all have loaded."""

    def __init__(self, processes: SoakedProcesses, of: SoakRound) -> None:
        self._processes, mishap = processes, of.mishap
        self._slot = of.members[mishap.member] if mishap else -1
        self._due: list[tuple[float, int]] = []
        if mishap and mishap.kind == "kills":
            self._due = [(mishap.after, signal.SIGKILL)]
        if mishap and mishap.kind in ("pauses", "freezes"):
            self._due = [(mishap.after, signal.SIGSTOP), (mishap.after + mishap.seconds, signal.SIGCONT)]
        self._began = 0.0
        self.has_killed = self.has_stopped = False

    def begin(self) -> None:
        self._began = self._began or time.monotonic()

    def send(self) -> float:
        """Send the signals that are due; return the seconds until the next one, and a second at most."""
        if not self._began or not self._due:
            return 1.0
        now = time.monotonic() - self._began
        while self._due and self._due[0][0] <= now:
            self._send(self._due.pop(0)[1])
        return min(1.0, self._due[0][0] - now) if self._due else 1.0

    def end(self) -> None:
        """Let a stopped process go on, and replace a dead one."""
        if any(number == signal.SIGCONT for _, number in self._due):
            self._send(signal.SIGCONT)
        self._due = []
        if self.has_killed:
            self._processes.processes[self._slot].join()
            self._processes.start(self._slot)

    def _send(self, number: int) -> None:
        self._processes.signal(self._slot, number)
        self.has_killed = self.has_killed or number == signal.SIGKILL
        self.has_stopped = self.has_stopped or number == signal.SIGSTOP
