"""FSDP2 with reduce-scatters of a scheme, and replicas averaged by changed rows."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

import zenc
from tests.support import local
from tests.support.fuzz import tried
from zenc.api import compile
from zenc.errors import SynchronisationError, TensorError
from zenc.tables.publish import Published, _Publishing
from zenc.tables.update import BITS_OF, update_kernels

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


INTEGERS = {16: torch.int16, 32: torch.int32, 64: torch.int64}
DTYPES = sorted(BITS_OF, key=str)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(INTEGERS[BITS_OF[tensor.dtype]])


def changed(old: torch.Tensor, share: float, kind: str, seed: int) -> torch.Tensor:
    """Return ``old`` [n] with a share of its numbers moved a little, redrawn, or set to any bits."""
    generator = torch.Generator().manual_seed(seed)
    new, where = old.clone(), torch.rand(old.shape, generator=generator) < share
    n, view = int(where.sum()), bits(new)
    if kind == "near":
        view[where] += torch.randint(-2, 3, (n,), generator=generator).to(view.dtype)
    elif kind == "redrawn":
        new[where] = torch.randn(n, generator=generator).to(old.dtype)
    else:
        view[where] = torch.randint(-(1 << 62), 1 << 62, (n,), generator=generator).to(view.dtype)
    return new


@given(
    dtype=st.sampled_from(DTYPES),
    n=st.sampled_from([0, 1, 63, 64, 65, 1024, 5000]),
    share=st.sampled_from([0.0, 0.001, 0.05, 0.7, 1.0]),
    kind=st.sampled_from(["near", "redrawn", "any bits"]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=tried(150), deadline=None)
def test_updates_are_exact(dtype, n, share, kind, seed):
    kernels, old = update_kernels(), torch.randn(n, generator=torch.Generator().manual_seed(seed)).to(dtype)
    new = changed(old, share, kind, seed)
    update = kernels.encode(old, new)
    if update is None:
        return
    held, received = old.clone(), kernels.received(update.numel())
    received[: update.numel()] = update
    assert kernels.apply(received, update.numel(), held) == int((bits(old) != bits(new)).sum())
    assert torch.equal(bits(held), bits(new))
    assert update.numel() < new.nbytes


@given(st.binary(max_size=200), st.sampled_from(DTYPES))
@settings(max_examples=tried(150), deadline=None)
def test_bytes_of_strangers_change_all_or_nothing(data, dtype):
    kernels, held = update_kernels(), torch.zeros(100, dtype=dtype)
    received = kernels.received(len(data))
    received[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else received[:0]
    try:
        count = kernels.apply(received, len(data), held)
    except SynchronisationError as error:
        assert error.diagnostics[0].id == "corrupt-message"
        count = 0
    assert int((bits(held) != 0).sum()) == count


@pytest.mark.parametrize(("share", "most"), [(0.001, 1.75), (0.01, 1.25), (0.1, 0.8), (0.5, 0.45)])
def test_weights_that_move_by_one_take_their_entropy(share, most):
    """A change by one value of bfloat16 takes bytes within a tenth of the entropy of place and direction."""
    old = torch.randn(200_000).to(torch.bfloat16)
    where = torch.rand(old.shape) < share
    new = old.clone()
    bits(new)[where] += torch.tensor([-1, 1], dtype=torch.int16)[torch.randint(0, 2, (int(where.sum()),))]
    update = update_kernels().encode(old, new)
    assert update is not None
    assert update.numel() / int(where.sum()) < most


def publish(
    size: int, held: list[list[torch.Tensor]], new: Any, root: int, on_send: Any = lambda packet: packet
) -> Any:
    ranks = local.collectives(compile("balanced", ranks=size), size, on_send=on_send)
    calls = [
        _Publishing(rank.communicator, held[at], new if at == root else None, root, 20.0)
        for at, rank in enumerate(ranks)
    ]

    def outcome(call: _Publishing) -> Any:
        try:
            return call.run(1)
        except (TensorError, SynchronisationError) as error:
            return error.diagnostics[0].id

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(outcome, calls))


@pytest.mark.parametrize(("size", "root"), [(1, 0), (2, 1), (3, 2), (5, 1)])
def test_all_ranks_hold_what_the_root_has(size, root):
    """Tensors longer than a packet change a little, wholly, or not at all."""
    old = [torch.randn(300, 700).to(torch.bfloat16), torch.randn(90_000), torch.zeros(0), torch.randn(5)]
    new = [changed(old[0], 0.5, "redrawn", 1), torch.randn(90_000), torch.zeros(0), old[3].clone()]
    held = [[each.clone() for each in old] for _ in range(size)]
    done = publish(size, held, new, root)
    differing = int((bits(old[0]) != bits(new[0])).sum())
    assert done == [Published(300_005, 90_000 + differing, done[0].bytes)] * size
    assert all(torch.equal(each, wanted) for own in held for each, wanted in zip(own, new, strict=True))


def test_ranks_with_other_numbers_are_found_by_all():
    held = [[torch.zeros(100), torch.zeros(7)] for _ in range(3)]
    held[2][1][3] = 1.0
    assert publish(3, held, [torch.ones(100), torch.ones(7)], 0) == ["other-base"] * 3
    assert [int(each.sum()) for own in held for each in own] == [0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("new", "root", "ids"),
    [
        ([torch.ones(8)], 0, ["other-model", "call-failed"]),
        ([torch.ones(9, dtype=torch.int32)], 0, ["unsupported-dtype", "call-failed"]),
        (None, 0, ["wrong-root", "call-failed"]),
        ([torch.ones(9)], 2, ["wrong-root", "wrong-root"]),
    ],
)
def test_what_cannot_be_published(new, root, ids):
    held = [[torch.zeros(9)], [torch.zeros(9)]]
    assert publish(2, held, new, root) == ids
    assert all(torch.equal(own[0], torch.zeros(9)) for own in held)


def test_a_damaged_packet_is_found_before_anything_changes():
    def damage(packet: torch.Tensor) -> torch.Tensor:
        packet[len(packet) // 2] ^= 1
        return packet

    held = [[torch.zeros(9000)], [torch.zeros(9000)]]
    new = [changed(held[0][0], 0.1, "redrawn", 3)]
    done = publish(2, held, new, 0, damage)
    assert done[1] == "corrupt-message"
    assert not held[1][0].any()


def test_processes(nine):
    assert all(nine.run("tests.runtime.jobs:publishes", size=3))
