"""FSDP2 with reduce-scatters of a scheme, and replicas averaged by changed rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

import zenc

ROWS, WIDTH = 30, 4


def fsdp(group: dist.ProcessGroup, cases: list[dict[str, Any] | None]) -> list[list[torch.Tensor]]:
    """Return gradient shards of one step of a model under FSDP2 for each case: None is FSDP's own communication."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    mesh = DeviceMesh.from_group(group, "cpu")
    found = []
    for case in cases:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Embedding(ROWS, WIDTH), torch.nn.Linear(WIDTH, 3))
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
        if case is not None:
            model[0].set_custom_reduce_scatter(zenc.FsdpReduceScatter(**case))
            model.set_custom_reduce_scatter(zenc.FsdpReduceScatter())
        generator = torch.Generator().manual_seed(group.rank())
        model(torch.randint(0, ROWS, (5,), generator=generator)).square().sum().backward()
        found.append([parameter.grad.to_local() for parameter in model.parameters()])
    return found


def fsdp_refused(group: dist.ProcessGroup, scheme: str | None, width: int) -> str:
    """Return the id of the error of a reduce-scatter of 240 values a rank."""
    comm = zenc.FsdpReduceScatter(scheme, width)
    rows = comm.allocate((240 * group.size(),), dtype=torch.float32, device=torch.device("cpu")).fill_(1)
    try:
        comm(torch.empty(240), rows, group, dist.ReduceOp.SUM)
    except zenc.ZencError as error:
        return error.diagnostics[0].id
    return ""


def hooked(group: dist.ProcessGroup) -> list[torch.Tensor]:
    """Return gradients of a model on one rank under FSDP2, and the mean of all ranks' by the hook."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    alone = dist.new_group([dist.get_rank()], use_local_synchronization=True)
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    fully_shard(model, mesh=DeviceMesh.from_group(alone, "cpu"))
    model.set_all_reduce_hook(zenc.FsdpAllReduceHook("balanced", group))
    model(torch.full((1, 3), float(group.rank() + 1))).sum().backward()
    return [parameter.grad.to_local() for parameter in model.parameters()]


def averaged(group: dist.ProcessGroup, scheme: str, by_hook: bool) -> dict[str, Any]:
    """Return this rank's tensors after steps that change some rows, and those of a dense mean."""
    rank = group.rank()
    average = zenc.ReplicaAverage(scheme, None if by_hook else group)
    ours = [torch.randn(40, 3), torch.randn(40), torch.randn(3, 8).T, torch.zeros(0, 3)]
    plain = [tensor.clone() for tensor in ours]
    for step in range(4):
        for tensors in (ours, plain):
            generator = torch.Generator().manual_seed(10 * step + rank)
            for tensor in tensors:
                if len(tensor):
                    rows = torch.randint(0, len(tensor), (2,), generator=generator)
                    tensor[rows] += torch.randn(2, *tensor.shape[1:], generator=generator)
        average.in_group(group, ours) if by_hook else average(ours)
        for tensor in plain:
            mean = tensor.contiguous()
            dist.all_reduce(mean, group=group)
            tensor.copy_(mean / group.size())
    return {"ours": ours, "plain": plain}


JOBS = "tests.tables.test_adapters"


def test_gradients_of_fsdp_are_its_own(four):
    cases = [None, {}, {"width": 4}, {"scheme": "dense_ring", "width": 4}]
    for results in four.run(f"{JOBS}:fsdp", size=3, cases=cases):
        for found in results[1:]:
            assert all(torch.allclose(*pair, rtol=1e-6) for pair in zip(found, results[0], strict=True))
        assert results[0][0].any(), "some row of the table was looked up"


@pytest.mark.parametrize(
    ("scheme", "width", "expected"),
    [(None, 6, ""), (None, 7, "other-shards"), ("balanced", 6, "other-shards"), ("holders", 6, "phase-not-alone")],
)
def test_other_shards_are_refused(two, scheme, width, expected):
    assert two.run(f"{JOBS}:fsdp_refused", scheme=scheme, width=width) == [expected] * 2


def test_the_hook_of_fsdp_reduces_over_replicas(two):
    for weight, bias in two.run(f"{JOBS}:hooked"):
        assert torch.equal(weight, torch.full((2, 3), 1.5)) and torch.equal(bias, torch.ones(2))


@pytest.mark.parametrize(("scheme", "by_hook"), [("balanced", False), ("agsparse", True)])
def test_replicas_are_averaged(four, scheme, by_hook):
    """The calls are torchrec's: ``custom_all_reduce(tensors)``, and a hook with the group."""
    results = four.run(f"{JOBS}:averaged", size=3, scheme=scheme, by_hook=by_hook)
    for result in results:
        for ours, plain, first in zip(result["ours"], result["plain"], results[0]["ours"], strict=True):
            assert torch.allclose(ours, plain, rtol=1e-5, atol=1e-6) and torch.equal(ours, first)
