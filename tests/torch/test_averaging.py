"""Averagers on real gloo processes: means of groups, and of all after a period; one step on all ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import zenc
from tests.support.generations import Join, dies, lives
from zenc.averaging.model import EvenDivision, Shuffled
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


def alone(group: dist.ProcessGroup, steps: int, averaging: str, **options: Any) -> list[list[torch.Tensor]]:
    """Return the parameters of a small model after each step of training on this rank's own data, under DiLoCo."""
    model, optimizer = model_and_optimizer()
    zenc.Averager(model, averaging, group, deadline=20, **options).follow(optimizer)
    found = []
    for step in range(steps):
        train(model, optimizer, group.rank(), step)
        found.append([each.detach().clone() for each in model.parameters()])
    return found


def model_and_optimizer() -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a model, the same on all ranks, and an inner optimizer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, step: int) -> None:
    """Make a step of training on the data of ``rank``."""
    generator = torch.Generator().manual_seed(100 * rank + step)
    optimizer.zero_grad()
    (model(torch.randn(8, 4, generator=generator)) - rank).pow(2).mean().backward()
    optimizer.step()


def mocked(group: dist.ProcessGroup, keep: float, late: int, steps: int, saved_at: int = -1) -> list[list[float]]:
    """Return both parameters after each step that takes 2 from each, synchronised in turn each 3 steps by SGD of 2."""
    named = [(f"layers.{at}.weight", torch.ones(1, 1)) for at in range(2)]
    entries = f"when: every(6) fragments: runs(2) overlap: during({late}, {keep}) outer: sgd(2) sums: dense_ring"
    text = f"averaging mocked {{ alternate [everyone] {entries} }}"
    averager = zenc.Averager(named, text, group, deadline=20)
    found = [[each.item() for _, each in named]]
    for step in range(steps):
        if step == saved_at:
            state = averager.state_dict()
            averager = zenc.Averager(named, text, group, deadline=20)
            averager.load_state_dict(state)
        for _, each in named:
            each.sub_(2)
        averager.average_parameters()
        found.append([each.item() for _, each in named])
    return found


def kept(group: dist.ProcessGroup, seed: int, averages: int, again: str) -> dict[str, Any]:
    """Return what each average of ``sparse_loco`` was given, made and kept on this rank, as float64."""
    generator = torch.Generator().manual_seed(1000 * seed + group.rank())
    named = [("a", torch.zeros(5000)), ("b", torch.zeros(40, 30))]
    averager = zenc.Averager(named, "sparse_loco", group, params={"steps": 1, "lr": 1}, deadline=20)
    found: dict[str, Any] = {"given": [], "made": [], "kept": []}
    for average in range(averages):
        if again == "rebuilt" and average == 1:
            averager.rebuild(group)
        if again == "loaded" and average == 1:
            state = averager.state_dict()
            averager = zenc.Averager(named, "sparse_loco", group, params={"steps": 1, "lr": 1}, deadline=20)
            averager.load_state_dict(state)
        before = [each.clone() for _, each in named]
        for _, each in named:
            each.add_(torch.randn(each.shape, generator=generator))
        found["given"].append([(b - each).double() for b, (_, each) in zip(before, named, strict=True)])
        averager.average_parameters()
        found["made"].append([(b - each).double() for b, (_, each) in zip(before, named, strict=True)])
        found["kept"].append([averager.collectives[0].residual(name).double() for name, _ in named])
    found["sent"] = averager.collectives[0].stats["bytes_sent"]
    found["names"] = sorted(averager.state_dict()["residuals"]["tensors"])
    return found


def outer_refused(group: dist.ProcessGroup, how: str) -> list[str]:
    """Return the id and message of the error of this rank under an outer optimizer that is given something wrong."""
    start = torch.full((5,), float(group.rank() == 1 and how == "start"))
    try:
        model = None if how == "model" else [("w", start.to(torch.float64 if how == "dtype" else torch.float32))]
        averaging = "sparse_loco" if how == "dtype" else "diloco"
        averager = zenc.Averager(model, averaging, group, params={"steps": 1}, deadline=6)
        state = averager.state_dict()
        if how == "state":
            averager.load_state_dict({**state, "parameters": {"v": state["parameters"]["w"]}})
        if how == "shape":
            averager.load_state_dict({**state, "parameters": {"w": {"anchor": torch.zeros(4)}}})
        if how == "words":
            averager.load_state_dict({**state, "words": {"when": "every(7)"}})
        averager.average_parameters([start] if how in ("model", "other") else None)
    except ZencError as error:
        return [error.diagnostics[0].id, error.diagnostics[0].message]
    return ["none"]


JOBS = "tests.torch.test_averaging:"


def means(values: list[list[torch.Tensor]], groups: list[tuple[int, ...]]) -> list[list[torch.Tensor]]:
    """Return each rank's values after a step, in float64."""
    of_rank = {rank: group for group in groups for rank in group}
    return [
        [torch.stack([values[other][at] for other in of_rank[rank]]).mean(dim=0) for at in range(len(values[rank]))]
        for rank in range(len(values))
    ]


@pytest.mark.parametrize("options", [{"params": {"orders": 3}}, {"shared_memory": False}])
def test_each_step_is_the_mean_of_a_group_and_a_period_that_of_all(four, options):
    found = four.run(JOBS + "steps", averaging="ds_sync", count=3, **options)
    values = [[each.double() for each in parameters(rank)] for rank in range(4)]
    shuffled = Shuffled(3).orders(4)[1] if "params" in options else range(4)
    for step, division in enumerate((EvenDivision(1, 2), EvenDivision(2), EvenDivision(1, 2))):
        own = division.groups(4)
        groups = own if step < 2 else [tuple(sorted(shuffled[rank] for rank in group)) for group in own]
        values = means(values, groups)
        for rank in range(4):
            members, got = found[rank][step]
            assert members in groups and rank in members
            assert got == [each.tolist() for each in values[rank]]
        if step == 1:
            whole = means([[each.double() for each in parameters(rank)] for rank in range(4)], [(0, 1, 2, 3)])
            assert all(found[rank][1][1] == found[0][1][1] == [each.tolist() for each in whole[0]] for rank in range(4))
    assert found[3][3] == "<zenc.Averager ds_sync rank 3 of 4, step 3>"


def test_ranks_of_a_group_have_the_same_bits(four, tmp_path):
    (tmp_path / "a.zen").write_text(
        "averaging uneven { alternate [groups [0, 1, 3] [2], everyone] sums: balanced }", encoding="utf-8"
    )
    first, second = zip(*four.run(JOBS + "bits", averaging=str(tmp_path / "a.zen")), strict=True)
    assert first[0] == first[1] == first[3] != first[2]
    assert len(set(second)) == 1


def test_parameters_follow_an_optimizer_and_state_goes_on(four):
    found = four.run(JOBS + "trained")
    divisions = ["rows(2)", "columns(2)"]
    assert [each["state"] for each in found] == [{"zenc_averaging": 1, "step": 3, "divisions": divisions}] * 4
    assert found[0]["apart"] == found[1]["apart"] != found[2]["apart"], "between two steps of a period only rows agree"
    assert [(each["step"], each["again"]) for each in found] == [(3, 4)] * 4


@pytest.mark.parametrize(
    ("how", "ids", "said"),
    [
        ("state", {"bad-state"}, "this is no state of averaging 'ds_sync'"),
        ("dtype", {"unsupported-layout"}, "torch.int64"),
        ("loaded", {"different-schemes"}, "ds_sync in step 1, of 1 tensors with 5 values"),
        ("shape", {"different-schemes"}, "of 1 tensors with 6 values"),
        ("skipped", {"different-calls", "peer-lost", "deadline", "group-broken"}, "of averaging 'ds_sync', with ranks"),
        ("scheme", {"no-averaging", "peer-failed"}, "has no averaging"),
    ],
)
def test_ranks_that_differ_find_out(four, how, ids, said):
    found = four.run(JOBS + "refused", how=how)
    assert all(each[0] in ids for each in found), found
    assert any(said in line for each in found for line in each)
    if how == "skipped":
        assert any(each[0] == "different-calls" for each in found), "those that meet are told what is wrong"


@pytest.mark.parametrize("groups", [[(0, 1, 2, 3), (3, 0)], [(0, 1), (4, 0, 2, 3)]], ids=["fewer", "more"])
def test_an_averager_is_rebuilt_and_begins_a_period(groups: list[tuple[int, ...]]) -> None:
    found = lives(JOBS + "over_a_death", groups, dying=1)
    for members in groups:
        alive = [found[member] for member in members if member != 1]
        of_group = [-1 if members == groups[1] else 0] * len(alive)
        begun, ended = ([each[at][k] for each, k in zip(alive, of_group, strict=True)] for at in ("begun", "ended"))
        for at in range(len(begun[0])):
            assert all(torch.equal(each[at], ended[0][at]) for each in ended)
            if 1 not in members:
                assert torch.equal(ended[0][at], torch.stack([each[at] for each in begun]).mean(dim=0))
    assert found[0]["died"] in ("peer-lost", "deadline"), "it averages with the rank that has died"
