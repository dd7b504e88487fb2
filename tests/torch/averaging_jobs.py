"""Jobs of ranks in the tests of averagers; each takes the group first."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import zenc
from tests.support.generations import Join, dies
from zenc.errors import SynchronisationError, ZencError


def parameters(rank: int) -> list[torch.Tensor]:
    """Return parameters of several shapes and dtypes, whole numbers, so that halves and quarters of sums are exact."""
    generator = torch.Generator().manual_seed(rank)
    whole = torch.randint(-1000, 1000, (3, 50), generator=generator)
    large, narrow = whole[0].float().repeat(3).view(30, 5), whole[1].double()
    return [large, narrow, large.clone().t(), torch.tensor(float(rank)), whole[2].to(torch.bfloat16) % 64]


def steps(group: dist.ProcessGroup, averaging: str, count: int, **options: Any) -> list[list[Any]]:
    """Return this rank's group and its values after each step, as lists."""
    averager = zenc.load_averager(averaging, group, deadline=20, **options)
    tensors = parameters(group.rank())
    found = []
    for _ in range(count):
        members = averager.group
        averager.average_parameters([*tensors, tensors[0]])
        found.append([members, [each.double().tolist() for each in tensors]])
    return [*found, repr(averager)]


def bits(group: dist.ProcessGroup, averaging: str) -> list[bytes]:
    """Return the bytes of odd float32 values after each of two steps; the second and last tensor has its own bucket."""
    averager = zenc.load_averager(averaging, group, deadline=20)
    generator = torch.Generator().manual_seed(group.rank())
    tensors = [torch.randn(1001, generator=generator), torch.randn(7, 11, generator=generator)]
    found = []
    for _ in range(2):
        averager.average_parameters(tensors)
        found.append(b"".join(each.numpy().tobytes() for each in tensors))
    return found


def trained(group: dist.ProcessGroup, **options: Any) -> dict[str, Any]:
    """Train a model averaged after each optimizer step, saved between two steps of a period, and restored."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    averager = zenc.load_averager("ds_sync", group, deadline=20, **options)
    handle = averager.follow(optimizer)
    generator = torch.Generator().manual_seed(group.rank())

    def step() -> None:
        optimizer.zero_grad()
        model(torch.randn(8, 4, generator=generator)).pow(2).sum().backward()
        optimizer.step()

    for _ in range(3):
        step()
    saved = averager.state_dict()
    apart = model.weight.detach().clone()
    again = zenc.load_averager("ds_sync", group, deadline=20)
    again.load_state_dict(saved)
    again.average_parameters(model.parameters())
    handle.remove()
    step()
    return {"state": saved, "apart": apart.tolist(), "step": averager.step, "again": again.step}


def refused(group: dist.ProcessGroup, how: str) -> list[str]:
    """Return the id, message and notes of the error of this rank, which averages with others that differ."""
    rank = group.rank()
    try:
        averager = zenc.load_averager("ds_sync" if how != "scheme" else "balanced", group, deadline=6)
        if how == "state":
            averager.load_state_dict({**averager.state_dict(), "divisions": ["everyone"]})
        if how == "loaded":
            averager.load_state_dict({**averager.state_dict(), "step": 1 if rank == 2 else 0})
        values = [torch.ones(5 + (how == "shape" and rank == 1))]
        averager.average_parameters([torch.ones(5, dtype=torch.int64)] if how == "dtype" else values)
        for _ in range(5):
            if how == "skipped" and rank == 2 and averager.step == 1:
                averager.step += 1
            averager.average_parameters(values)
    except ZencError as error:
        return [error.diagnostics[0].id, error.diagnostics[0].message, *error.diagnostics[0].notes]
    return ["none"]


def over_a_death(member: int, join: Join, groups: list[list[int]], dying: int) -> dict[str, Any]:
    """Return this rank's values at the start of each group and two steps later, and the end of its last step."""
    averager, tensors, found = None, parameters(member), dict[str, Any](begun=[], ended=[], died="")
    for number, members in enumerate(groups):
        if member not in members:
            continue
        join(number)
        if averager is None:
            averager = zenc.load_averager("ds_sync", deadline=20)
        else:
            averager.rebuild()
        tensors = parameters(member + 10 * number)  # training takes them apart again
        found["begun"].append([each.double() for each in tensors])
        for _ in range(2):
            averager.average_parameters(tensors)
        found["ended"].append([each.double() for each in tensors])
        if number + 1 < len(groups):
            if member == dying:
                dies()
            try:
                averager.average_parameters(tensors)
            except SynchronisationError as error:
                found["died"] = error.diagnostics[0].id
    return found
