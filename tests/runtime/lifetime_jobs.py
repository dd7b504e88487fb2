"""Jobs of real processes about resources left by groups."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import zenc


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
