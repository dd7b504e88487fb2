"""Real processes for tests: a pool of ranks that stays up, stopped between jobs, forked from a process with torch.

    with Ranks(4) as ranks:
        results = ranks.run("tests.runtime.jobs:sum_once", size=3, scheme="balanced")    # one result a rank

Every rank calls ``job(group, **arguments)`` with the group of the first ``size`` ranks; results come back in rank
order, and an exception on a rank comes back as itself, in a ``RanksFailed``.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import socket
import time
import traceback
from typing import Any

from tests.support.forked import context

SECONDS = 120.0
PR_SET_PDEATHSIG = 1
GONE, LATE = "the process is gone", "the process has not answered"


class RanksFailed(Exception):
    """Errors of some ranks: ``errors`` is rank -> exception, ``results`` rank -> result of the others."""

    def __init__(self, errors: dict[int, BaseException], results: dict[int, Any], traces: dict[int, str]) -> None:
        super().__init__("\n".join(f"rank {rank}:\n{trace}" for rank, trace in traces.items()))
        self.errors, self.results = errors, results


class Ranks:
    """``size`` processes joined in one gloo world."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._start()

    def _start(self) -> None:
        size, port, self.whole = self.size, free_port(), True
        self.pipes, self.processes = [], []
        for rank in range(size):
            here, there = context().Pipe()
            process = context().Process(target=_serve, args=(rank, size, port, there, dict(os.environ)), daemon=True)
            process.start()
            there.close()
            self.pipes.append(here)
            self.processes.append(process)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, job: str, size: int | None = None, seconds: float = SECONDS, **arguments: Any) -> list[Any]:
        """Run ``module:function`` on the first ``size`` ranks, at once; raise RanksFailed if any of them did.

        After a job that left ranks dead or without an answer the next one has new processes.
        """
        if not self.whole:
            self.close()
            self._start()
        self._tell(signal.SIGCONT)
        deadline = time.monotonic() + seconds
        chosen = self.pipes[: size or self.size]
        for pipe in self.pipes:
            pipe.send((job, len(chosen), arguments))
        results: dict[int, Any] = {}
        errors: dict[int, BaseException] = {}
        traces: dict[int, str] = {}
        for rank, pipe in enumerate(self.pipes):
            kind, value, trace = _answer(pipe, deadline)
            if kind == "result":
                results[rank] = value
            else:
                errors[rank], traces[rank] = value, trace
        self.whole = not {GONE, LATE} & set(traces.values())
        if self.whole:  # gloo's threads would wake a hundred times a second each
            self._tell(signal.SIGSTOP)
        if errors:
            raise RanksFailed(errors, results, traces)
        return [results[rank] for rank in range(len(chosen))]

    def _tell(self, number: int) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def close(self) -> None:
        self._tell(signal.SIGCONT)
        for pipe in self.pipes:
            with contextlib.suppress(OSError):
                pipe.send(None)
        for process in self.processes:
            process.join(10 if self.whole else 0)
            if process.is_alive():
                process.kill()


def _answer(pipe: Any, deadline: float) -> tuple[str, Any, str]:
    try:
        if pipe.poll(max(0.0, deadline - time.monotonic())):
            kind, value, trace = pipe.recv()
            return kind, value, trace
    except (EOFError, OSError) as error:
        return "error", error, GONE
    return "error", TimeoutError(LATE), LATE


def _serve(rank: int, size: int, port: int, pipe: Any, environment: dict[str, str]) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # also where it is stopped
    os.environ.clear()
    os.environ.update(
        {**environment, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank),
         "WORLD_SIZE": str(size), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    )  # fmt: skip
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    groups = {size: dist.group.WORLD}
    while (request := pipe.recv()) is not None:
        name, members, arguments = request
        if members not in groups:  # each takes a thread that wakes a hundred times a second
            groups[members] = dist.new_group(list(range(members)))
        if rank >= members:
            pipe.send(("result", None, ""))
            continue
        module, _, function = name.partition(":")
        try:
            pipe.send(("result", getattr(importlib.import_module(module), function)(groups[members], **arguments), ""))
        except BaseException as error:
            _send_error(pipe, error)
    os._exit(0)  # groups of a test that broke them would otherwise be torn down, slowly


def _send_error(pipe: Any, error: BaseException) -> None:
    trace = traceback.format_exc()
    try:
        pipe.send(("error", error, trace))
    except Exception:  # not to be pickled
        pipe.send(("error", RuntimeError(f"{type(error).__name__}: {error}"), trace))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
