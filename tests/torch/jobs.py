"""Jobs of ranks in the tests of the DDP seam; each takes the group first."""

import contextlib
import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zenc
import zenc.runtime.choice.sampling as marks_module
from tests.runtime.jobs import bits

ROWS, WIDTH, STEPS = 500, 6, 4
held = marks_module._held


class Model(nn.Module):
    """Two sparse tables and one dense layer; optionally tied tables, and a table that may be left out."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(ROWS, WIDTH, sparse=True)
        self.bags = nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=True)
        if tied:
            self.bags.weight = self.words.weight
        self.head = nn.Linear(WIDTH, 3)
        self.use_bags = True

    def forward(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.words(ids).mean(dim=1)
        if self.use_bags:
            hidden = hidden + self.bags((ids * 7) % ROWS)
        return {"out": self.head(hidden)}


def batch(rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randint(0, ROWS, (8, 5), generator=generator)


def wrapped(group: dist.ProcessGroup, tied: bool = False, **options: Any) -> DistributedDataParallel:
    torch.manual_seed(0)
    return DistributedDataParallel(Model(tied), process_group=group, **options)


def train(
    group: dist.ProcessGroup, scheme: str | None, tied: bool = False, accumulate: bool = False, **options: Any
) -> list[torch.Tensor]:
    """Return the parameters after some steps, with a scheme or (None) with DDP alone."""
    ddp = wrapped(group, tied, **options)
    handle = zenc.attach(ddp, scheme, deadline=30) if scheme else None
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.5)
    for step in range(STEPS):
        optimizer.zero_grad()
        if accumulate:
            with ddp.no_sync():
                ddp(batch(group.rank(), step + 50))["out"].pow(2).sum().backward()
        ddp(batch(group.rank(), step))["out"].pow(2).sum().backward()
        zenc.clip_grad_norm_(ddp.parameters(), 1.0)
        optimizer.step()
    if handle:
        expected = ("module.words.weight",) if tied else ("module.words.weight", "module.bags.weight")
        names = tuple(f"module.{name}" for name in handle.parameters)
        assert names == expected and len(handle.stats) == 1, "two tables have one call, of a static graph at last"
        assert all(handle.stats[name]["units_out"] >= handle.stats[name]["units_in"] > 0 for name in handle.parameters)
    return [parameter.detach().clone() for parameter in ddp.parameters()]


def same_as_ddp(group: dist.ProcessGroup, scheme: str, **options: Any) -> list[str]:
    """Check training with the scheme against DDP, up to the order of additions; return fingerprints."""
    ours, theirs = train(group, scheme, **options), train(group, None, **options)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)
    return [bits(parameter) for parameter in ours]


def short_tables(group: dist.ProcessGroup, dtype: str) -> list[float]:
    """Return differences of gradients of a 16-bit table from float32, accumulated over passes and steps."""
    ids = [batch(group.rank(), number) for number in range(6)]
    wide, short = (
        DistributedDataParallel(nn.Embedding(ROWS, WIDTH, sparse=True, dtype=each), process_group=group)
        for each in (torch.float32, getattr(torch, dtype))
    )
    handle = zenc.attach(short, "balanced", deadline=30)
    for model in (wide, short):
        for number, each in enumerate(ids):
            with contextlib.nullcontext() if number % 3 == 2 else model.no_sync():
                model(each).sum().backward()
            model.module.weight.grad = model.module.weight.grad if number != 2 else None
    (alone,) = torch.autograd.grad(short.module(ids[0]).sum(), short.module.weight)
    assert alone.float().to_dense().sum() == ids[0].numel() * WIDTH, "it adds to no gradient, and takes none away"
    expected, found = (model.module.weight.grad.float().to_dense() for model in (wide, short))
    handle.detach()
    return [float((expected - found).abs().max()), float(expected.abs().max())]


def padding_only(group: dist.ProcessGroup) -> int:
    """Train with a batch of padding on one rank, whose gradient is empty."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50, 4, sparse=True, padding_idx=0), nn.Flatten(), nn.Linear(8, 1))
    ddp = DistributedDataParallel(model, process_group=group)
    handle = zenc.attach(ddp, "balanced", deadline=30)
    ids = torch.zeros(3, 2, dtype=torch.long) if group.rank() == 1 else torch.tensor([[1, 2], [3, 4], [5, 1]])
    ddp(ids).sum().backward()
    assert model[0].weight.grad.coalesce().indices().tolist() == [[1, 2, 3, 4, 5]]
    return handle.stats["0.weight"]["units_in"]


def hook_idiom(group: dist.ProcessGroup) -> list[str]:
    """Use the hook as torch's own: a state and a function."""
    ddp = wrapped(group)
    state = zenc.ZencState(zenc.load("balanced", group, deadline=30), group)
    ddp.register_comm_hook(state, zenc.zenc_hook)
    for step in range(2):
        ddp.zero_grad()
        ddp(batch(group.rank(), step))["out"].sum().backward()
    return [
        bits(parameter.grad.coalesce() if parameter.grad.is_sparse else parameter.grad)
        for parameter in ddp.parameters()
    ]


class Tables(nn.Module):
    """Dense gradients only: a table between two layers, and a table of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.words = nn.Embedding(ROWS, WIDTH)
        self.last = nn.Linear(WIDTH, 3)
        self.tags = nn.Embedding(ROWS, WIDTH)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(self.words(ids).mean(dim=1)) + self.tags(ids[:, 0]))


def dense_tables(group: dist.ProcessGroup, dense: list[str], **options: Any) -> list[str]:
    """Train by Adam with tables through the scheme as without; return fingerprints."""
    found = []
    for scheme in ("balanced", None):
        torch.manual_seed(0)
        ddp = DistributedDataParallel(Tables(), process_group=group, **options)
        handle = zenc.attach(ddp, scheme, dense=dense, deadline=30) if scheme else None
        optimizer = torch.optim.Adam(ddp.parameters(), lr=0.05)
        for step in range(STEPS):
            optimizer.zero_grad()
            ddp(batch(group.rank(), step)).pow(2).sum().backward()
            if handle:
                rows = {int(row) for rank in range(group.size()) for row in batch(rank, step).flatten()}
                assert handle.stats["words.weight"]["units_out"] == len(rows), "units are rows"
            optimizer.step()
        if handle:
            assert set(handle.stats) == set(dense) == set(handle.parameters)
        found.append([parameter.detach().clone() for parameter in ddp.parameters()])
    for mine, other in zip(*found, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
    return [bits(parameter) for parameter in found[0]]


def dense_refused(group: dist.ProcessGroup, name: str) -> None:
    zenc.attach(wrapped(group), "balanced", dense=[name])


def unused(group: dist.ProcessGroup, find: bool) -> None:
    ddp = wrapped(group, find_unused_parameters=find)
    zenc.attach(ddp, "balanced", deadline=30)
    ddp(batch(group.rank(), 0))["out"].sum().backward()
    ddp.module.use_bags = False
    with contextlib.suppress(RuntimeError):
        ddp(batch(group.rank(), 1))["out"].sum().backward()


def unused_with_the_advice(group: dist.ProcessGroup) -> None:
    """Follow the error's advice: an empty look-up works."""
    ddp = wrapped(group)
    zenc.attach(ddp, "balanced", deadline=30)
    ddp.module.use_bags = False
    out = ddp.module.words.register_forward_hook(
        lambda module, inputs, output: output + ddp.module.bags(torch.empty(0, 1, dtype=torch.long)).sum()
    )
    for step in range(2):
        ddp(batch(group.rank(), step))["out"].sum().backward()
    out.remove()


def attach_twice(group: dist.ProcessGroup) -> None:
    ddp = wrapped(group)
    zenc.attach(ddp, "balanced", deadline=30)
    zenc.attach(ddp, "balanced", deadline=30)


def divided_by_fewer(group: dist.ProcessGroup) -> None:
    ddp = DistributedDataParallel(nn.Linear(4, 2), process_group=group)
    zenc.attach(ddp, "balanced", dense=True, deadline=30)
    with ddp.join(divide_by_initial_world_size=False):
        ddp(torch.ones(1, 4)).sum().backward()


def two_models(group: dist.ProcessGroup) -> None:
    """Train two models over one group, a hook and a scheme each, with steps in turn, as with DDP alone."""
    ours, theirs = [wrapped(group) for _ in range(2)], wrapped(group)
    for ddp, scheme in zip(ours, ("balanced", "agsparse"), strict=True):
        zenc.attach(ddp, scheme, deadline=30)
    for step in range(2):
        for ddp in (*ours, theirs):
            ddp.zero_grad()
            ddp(batch(group.rank(), step))["out"].pow(2).sum().backward()
        for mine, other, expected in zip(*(ddp.parameters() for ddp in (*ours, theirs)), strict=True):
            for gradient in (mine.grad, other.grad):
                torch.testing.assert_close(gradient.to_dense(), expected.grad.to_dense(), rtol=1e-5, atol=1e-6)


def attach_plain(group: dist.ProcessGroup) -> None:
    zenc.attach(Model(), "balanced")  # type: ignore[arg-type]


def attach_tied_to_dense(group: dist.ProcessGroup) -> None:
    model = nn.ModuleDict({"table": nn.Embedding(10, 4, sparse=True), "out": nn.Linear(4, 10, bias=False)})
    model["out"].weight = model["table"].weight
    zenc.attach(DistributedDataParallel(model, process_group=group), "balanced")


def attach_unfrozen(group: dist.ProcessGroup) -> None:
    model = nn.Linear(4, 2)
    model.weight.requires_grad_(False)
    ddp = DistributedDataParallel(model, process_group=group)
    model.weight.requires_grad_(True)
    assert zenc.attach(ddp, "balanced", dense=True).parameters == ("bias",)
    zenc.attach(ddp, "balanced", dense=["weight"])


def dies_in_training(group: dist.ProcessGroup) -> str:
    """Return the text of the error of backward on the ranks that are left."""
    ddp = wrapped(group)
    handle = zenc.attach(ddp, "balanced", deadline=5)
    error = over_a_death(ddp, group)
    return f"{type(error).__name__} {type(handle.state.error).__name__}: {error}"


def over_a_death(ddp: DistributedDataParallel, group: dist.ProcessGroup) -> Exception | None:
    """Train until rank 1 dies, and return the error of backward on another rank."""
    for step in range(20):
        if group.rank() == 1 and step == 5:
            os._exit(1)
        try:
            ddp(batch(group.rank(), step))["out"].sum().backward()
        except (RuntimeError, zenc.ZencError) as error:
            return error
    return None


def profiled(group: dist.ProcessGroup, path: str, **options: Any) -> tuple[list[str], list[str], list[Any]]:
    """Train with a profiler as without, to the bit; return parameters twice, and the profiles as JSON."""
    found, profiler = [], zenc.Profiler(every=2, **options)
    for profiler_or_none in (None, profiler):
        torch.manual_seed(0)
        ddp = wrapped(group)
        zenc.attach(ddp, "balanced", deadline=30, profiler=profiler_or_none)
        for step in range(STEPS):
            ddp.zero_grad()
            ddp(batch(group.rank(), step))["out"].pow(2).sum().backward()
        found.append([bits(parameter.grad.coalesce() if parameter.grad.is_sparse else parameter.grad)
                      for parameter in ddp.parameters()])  # fmt: skip
    if group.rank() == 0:
        profiler.save(path)
    return found[0], found[1], [profile.to_json() for profile in profiler.profiles().values()]


def profiled_dense(group: dist.ProcessGroup) -> Any:
    """Return the profile by rows of a table with dense gradients."""
    torch.manual_seed(0)
    ddp, profiler = DistributedDataParallel(Tables(), process_group=group), zenc.Profiler(every=1)
    zenc.attach(ddp, "balanced", dense=["words.weight"], deadline=30, profiler=profiler)
    ddp(batch(group.rank(), 0)).pow(2).sum().backward()
    return profiler.profiles()["words.weight"].to_json()


def profiled_differently(group: dist.ProcessGroup, every: list[int | None]) -> None:
    mine = every[group.rank()]
    profiler = None if mine is None else zenc.Profiler(every=mine)
    zenc.attach(wrapped(group), "balanced", deadline=30, profiler=profiler)


def profiled_by_a_rank_that_fails(group: dist.ProcessGroup) -> int:
    """Check that all ranks drop a sample that one could not take; return how many were kept."""
    ddp, profiler = wrapped(group), zenc.Profiler(every=1)
    zenc.attach(ddp, "balanced", deadline=30, profiler=profiler)
    for step in range(3):
        if group.rank() == 1:
            marks_module._held = held if step == 1 else fails
        ddp(batch(group.rank(), step))["out"].sum().backward()
    marks_module._held = held
    return profiler.profiles()["words.weight"].recorded.steps


def fails(*_: object) -> torch.Tensor:
    raise MemoryError("no room for marks")


def profiled_with_a_dead_rank(group: dist.ProcessGroup) -> tuple[str, int]:
    """Return the error of backward on the ranks that are left, and their samples."""
    ddp, profiler = wrapped(group), zenc.Profiler(every=1)
    zenc.attach(ddp, "balanced", deadline=5, profiler=profiler)
    error = over_a_death(ddp, group)
    return f"{error}", profiler.profiles()["words.weight"].recorded.steps
