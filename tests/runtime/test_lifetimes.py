"""Ends of groups and processes: resources left, exits after a failed call, and forks."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import zenc
from zenc.runtime.transports.socket_transport import SocketTransport, hub_functions, room_of_machine


def held() -> tuple[int, int, int]:
    """Return files, threads, and mappings of memory that is shared or receives messages."""
    with open("/proc/self/maps") as maps:
        mapped = sum("memfd:zenc" in line for line in maps)
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), mapped


def groups(group: dist.ProcessGroup, ends: str, number: int, shared_memory: bool) -> list[tuple[int, int, int]]:
    """Return the resources held after each of some groups, which ``ends`` by a close, its destruction, or both."""
    found = []
    for trial in range(number):
        own = dist.new_group(list(range(group.size())))
        found.append(_used(own, trial, ends, shared_memory))
        if ends != "close":
            dist.destroy_process_group(own)
            dist.barrier()
            found[-1] = held()
            continue
        dist.barrier()
        found[-1] = held()
        dist.destroy_process_group(own)
    return found


def _used(own: dist.ProcessGroup, trial: int, ends: str, shared_memory: bool) -> tuple[int, int, int]:
    if ends == "attach":
        model = DistributedDataParallel(torch.nn.EmbeddingBag(50, 4, sparse=True), process_group=own)
        handle = zenc.attach(model, "balanced", shared_memory=shared_memory)
        model(torch.tensor([[trial, own.rank()]])).sum().backward()
        handle.detach()
        return held()
    first = zenc.load("balanced", own, shared_memory=shared_memory)
    second = zenc.load("dense_ring", own, shared_memory=shared_memory)
    for collective in (first, second):
        assert collective.all_reduce(torch.ones(5)).tolist() == [own.size()] * 5
        if ends == "close":
            collective.close()
            collective.close()
    return held()


def closed(group: dist.ProcessGroup) -> tuple[list[str], list[float]]:
    """Return errors of calls after a close, and sums of collectives that go on or were loaded anew."""
    own = dist.new_group(list(range(group.size())))
    first, second = zenc.load("balanced", own), zenc.load("balanced", own)
    first.close()
    sums = [float(second.all_reduce(torch.ones(3))[0])]
    second.close()
    errors = [_error(second), _error(first)]
    third = zenc.load("balanced", own)
    sums.append(float(third.all_reduce(torch.ones(3))[0]))
    dist.destroy_process_group(own)
    errors.append(_error(third))
    return errors, sums


def _error(collective: Any) -> str:
    try:
        collective.all_reduce(torch.ones(3))
    except zenc.SynchronisationError as error:
        return f"{error.diagnostics[0].id}: {error.diagnostics[0].message}"
    return "none"


JOBS = "tests.runtime.test_lifetimes:"
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("shared_memory", [True, False])
@pytest.mark.parametrize("ends", ["destroy", "close", "attach"])
def test_groups_leave_nothing(two: Any, ends: str, shared_memory: bool) -> None:
    for found in two.run(JOBS + "groups", ends=ends, number=8, shared_memory=shared_memory):
        assert max(found[2:]) <= max(found[:2]), found


@pytest.mark.slow
def test_two_hundred_groups_are_flat(two: Any) -> None:
    for found in two.run(JOBS + "groups", ends="attach", number=200, shared_memory=True, seconds=900):
        assert max(found[2:]) <= max(found[:2]), found


def test_what_is_closed_says_so_and_what_is_not_goes_on(two: Any) -> None:
    for errors, sums in two.run(JOBS + "closed"):
        assert all(error.startswith("group-broken: this collective was closed") for error in errors), errors
        assert sums == [2.0, 2.0]


SCRIPT = """
import json, os, sys, time, torch, torch.distributed as dist, zenc
from datetime import timedelta
def forked():
    found = []
    for kind, way in json.loads(sys.argv[2]):
        path, ranks = f"{sys.argv[1]}/{len(found)}", []
        for rank in range(2):
            ranks.append(os.fork())
            if ranks[rank] == 0:
                return path, rank, kind, way
        found.append([(os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]), time.time()) for each in ranks])
    print(json.dumps(found))
    sys.exit()
path, rank, kind, way = forked()
dist.init_process_group("gloo", store=dist.FileStore(path, 2), rank=rank, world_size=2, timeout=timedelta(seconds=20))
collective = zenc.load("balanced", deadline=60)
collective.all_reduce(torch.ones(100))
try:
    if kind == "differs":
        collective.all_reduce(torch.ones(4 + rank))
    elif rank == 1:
        os.kill(os.getpid(), 9)
    else:
        collective.all_reduce(torch.ones(100))
except zenc.SynchronisationError:
    with open(f"{path}-{rank}", "w") as file:
        file.write(str(time.time()))
    if way == "uncaught":
        raise
if way == "destroy":
    dist.destroy_process_group()
if way == "exit":
    sys.exit(7)
"""
SECONDS = 6
"""The longest that a process may take to end: it waits for nothing but messages on their way."""
STATUS = {"falls off": 0, "destroy": 0, "exit": 7, "uncaught": 1}


def outcomes(directory: Path, cases: list[tuple[str, str]]) -> list[list[tuple[int, bool, bool]]]:
    """Let two ranks a case, a kind and a way, end in that way after a failed call of that kind.

    They are forks of an interpreter that has imported torch, and end as it would. Return status, failure, and whether
    rank 0 ended in time.
    """
    directory.mkdir(exist_ok=True)
    command = [sys.executable, "-c", SCRIPT, str(directory), json.dumps(cases)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100 * len(cases))
    print(done.stderr[-2000:])
    found = []
    for number, ends in enumerate(json.loads(done.stdout)):
        failures = [directory / f"{number}-{rank}" for rank in range(2)]
        failed = [float(each.read_text()) if each.exists() else 0.0 for each in failures]
        found.append(
            [(status, at > 0, at > 0 and (rank > 0 or ended - at < SECONDS))
             for rank, ((status, ended), at) in enumerate(zip(ends, failed, strict=True))]
        )  # fmt: skip
    return found


def expected(kind: str, way: str) -> list[tuple[int, bool, bool]]:
    ended = (STATUS[way], True, True)
    return [ended, (-signal.SIGKILL, False, False) if kind == "dies" else ended]


def test_a_process_ends_in_order_after_a_call_that_failed(tmp_path: Path) -> None:
    cases = [("differs", "falls off"), ("differs", "destroy"), ("dies", "uncaught"), ("dies", "exit")]
    assert outcomes(tmp_path, cases) == [expected(*case) for case in cases]


@pytest.mark.slow
def test_eighty_processes_end_in_order(tmp_path: Path) -> None:
    cases = [(kind, way) for _ in range(5) for kind in ("differs", "dies") for way in STATUS]
    assert outcomes(tmp_path, cases) == [expected(*case) for case in cases]


def test_a_fork_does_not_hide_that_its_parent_has_ended() -> None:
    """A child that lives on, such as a data loader's worker, has none of its parent's connections."""
    here, there = socket.socketpair()
    parent = os.fork()
    if parent == 0:
        here.close()
        transport = SocketTransport(hub_functions(), room_of_machine(), 1, [there.detach(), -1])
        transport.send(0, 1, torch.ones(3, dtype=torch.uint8))
        if os.fork() == 0:
            time.sleep(30)
        os._exit(0)
    there.close()
    transport = SocketTransport(hub_functions(), room_of_machine(), 0, [-1, here.detach()])
    assert transport.receive(1, 1, torch.empty(0)).wait(20).tolist() == [1, 1, 1]
    started = time.monotonic()
    with pytest.raises(RuntimeError, match="given up, or has ended"):
        transport.receive(1, 1, torch.empty(0)).wait(20)
    assert time.monotonic() - started < 10
    os.waitpid(parent, 0)
    transport.close()
