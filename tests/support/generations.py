"""Real processes in one group after another, over one store: some die, and others join those that are left.

    found = lives("tests.runtime.test_lifetimes:sums", [(0, 1, 2), (0, 2, 3)])       # member -> what it returned

Each process is a member of some groups, and calls ``job(member, join, groups, **arguments)``; ``join(number)`` makes
the group of that number, the world from then on. One that ``dies()`` returns nothing.
"""

import gc
import importlib
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from tests.support.forked import context

Join = Callable[[int], dist.ProcessGroup]
SECONDS = 60.0
PATIENCE = timedelta(seconds=20)


def lives(job: str, groups: Sequence[Sequence[int]], **arguments: Any) -> dict[int, Any]:
    """Return each process's result, by its number; raise the traceback of one that fails."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    started = {}
    for member in sorted({member for group in groups for member in group}):
        here, there = context().Pipe()
        given = member, store.port, groups, job, arguments, there, dict(os.environ)
        process = context().Process(target=_live, args=given, daemon=True)
        process.start()
        there.close()
        started[member] = here, process
    found = {}
    for member, (pipe, _) in started.items():
        try:
            assert pipe.poll(SECONDS), f"process {member} has not answered"
            found[member] = pickle.loads(pipe.recv_bytes())
        except EOFError:
            continue
    for _, process in started.values():
        process.kill()
    failed = {member: text for member, (well, text) in found.items() if not well}
    assert not failed, "\n".join(f"process {member}: {text}" for member, text in failed.items())
    return {member: result for member, (_, result) in found.items()}


def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def open_things() -> tuple[int, int]:
    """Return threads and file descriptors of this process, giving threads that end connections a second to do so."""
    gc.collect()
    for thread in threading.enumerate():
        if "_end_connections" in thread.name:
            thread.join(2)
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def _live(
    member: int, port: int, groups: Any, job: str, arguments: Any, pipe: Any, environment: dict[str, str]
) -> None:
    os.environ.update({**environment, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"})
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    module, _, function = job.partition(":")
    try:
        work = getattr(importlib.import_module(module), function)
        result = True, work(member, partial(_joined, member, store, groups), groups, **arguments)
    except BaseException:
        result = False, traceback.format_exc()
    pipe.send_bytes(pickle.dumps(result))
    os._exit(0)


def _joined(member: int, store: dist.Store, groups: Sequence[Sequence[int]], number: int) -> dist.ProcessGroup:
    if dist.is_initialized():
        dist.destroy_process_group()
    members = groups[number]
    own = dist.PrefixStore(f"group {number}", store)
    dist.init_process_group("gloo", store=own, rank=members.index(member), world_size=len(members), timeout=PATIENCE)
    assert dist.group.WORLD is not None
    return dist.group.WORLD
