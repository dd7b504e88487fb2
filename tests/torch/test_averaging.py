"""Averagers on real gloo processes: means of groups, and of all after a period; one step on all ranks."""

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
        nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(model.parameters()).detach(), model.parameters())
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
            with torch.inference_mode():  # it averages outside
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
        if again == "loaded":
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
        averaging = {"dtype": "sparse_loco", "no residuals": "sparse_loco", "no sum": OVERLAPPED}.get(how, "diloco")
        averager = zenc.Averager(model, averaging, group, params=None if how == "no sum" else {"steps": 2}, deadline=6)
        state = averager.state_dict()
        if how == "state":
            averager.load_state_dict({**state, "parameters": {"v": state["parameters"]["w"]}})
        if how == "shape":
            averager.load_state_dict({**state, "parameters": {"w": {"anchor": torch.zeros(4)}}})
        if how == "no sum":
            averager.load_state_dict({**state, "step": 1})
        if how == "no residuals":
            averager.load_state_dict({**state, "step": 2})
        if how == "words":
            averager.load_state_dict({**state, "words": {"when": "every(7)"}})
        averager.average_parameters([start] if how in ("model", "other") else None)
    except ZencError as error:
        return [error.diagnostics[0].id, error.diagnostics[0].message]
    return ["none"]


JOBS = "tests.torch.test_averaging:"
OVERLAPPED = "averaging a { alternate [everyone] when: every(2) overlap: during(1, 0.5) outer: sgd(1) sums: balanced }"


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


def diloco(steps: int, every: int, ranks: int, **outer: float | bool) -> list[list[list[torch.Tensor]]]:
    """Return the parameters of each rank after each step, by torch's own SGD as the outer optimizer: one process."""
    models = [model_and_optimizer() for _ in range(ranks)]
    whole = [each.detach().clone() for each in models[0][0].parameters()]
    optimizer = torch.optim.SGD(whole, **outer)
    found: list[list[list[torch.Tensor]]] = [[] for _ in models]
    for step in range(steps):
        for rank, (model, inner) in enumerate(models):
            train(model, inner, rank, step)
        if (step + 1) % every == 0:
            for at, each in enumerate(whole):
                each.grad = torch.stack([each - list(model.parameters())[at].detach() for model, _ in models]).mean(0)
            optimizer.step()
            for model, _ in models:
                for each, value in zip(model.parameters(), whole, strict=True):
                    each.data.copy_(value)
        for rank, (model, _) in enumerate(models):
            found[rank].append([each.detach().clone() for each in model.parameters()])
    return found


@pytest.mark.parametrize(
    ("averaging", "params", "outer"),
    [
        ("diloco", {"steps": 3}, {"lr": 0.7, "momentum": 0.9, "nesterov": True}),
        ("averaging a { alternate [everyone] when: every(3) outer: sgd(0.5) sums: balanced }", {}, {"lr": 0.5}),
        ("averaging a { alternate [everyone] when: every(3) sums: dense_ring }", {}, {"lr": 1.0}),
    ],
    ids=["nesterov", "sgd", "local"],
)
def test_weights_are_those_of_an_optimizer_of_torch_over_the_mean_change(two, averaging, params, outer):
    found, expected = two.run(JOBS + "alone", steps=10, averaging=averaging, params=params), diloco(10, 3, 2, **outer)
    for rank in range(2):
        for step in range(10):
            for mine, theirs in zip(found[rank][step], expected[rank][step], strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    apart = [not torch.equal(found[0][step][0], found[1][step][0]) for step in range(10)]
    assert apart == [True, True, False] * 3 + [True], "ranks are alike after each third step, bit for bit"


# Both weights before each step, in torchft's fixtures (pytorch/torchft, revision 73dafea, test_fixtures/
# torchft.diloco_regression_test.DiLoCoMockedUpdateTest.test_diloco_mocked_updates_N.json), by overlap and share kept.
FIXTURES = {
    (0, 0): "1 -1 -3 -11 -13 -15 -17 -19 -21 -35 -37 -39 -41 -43 -45 -59 / "
    "1 -1 -3 -5 -7 -9 -23 -25 -27 -29 -31 -33 -47 -49 -51 -53",
    (0, 0.5): "1 -1 -3 -8 -10 -12 -14 -16 -18 -24.5 -26.5 -28.5 -30.5 -32.5 -34.5 -40.25 / "
    "1 -1 -3 -5 -7 -9 -17 -19 -21 -23 -25 -27 -32 -34 -36 -38",
    (1, 0): "1 -1 -3 -7 -9 -11 -13 -15 -17 -27 -29 -31 -33 -35 -37 -47 / "
    "1 -1 -3 -5 -7 -9 -19 -21 -23 -25 -27 -29 -39 -41 -43 -45",
    (1, 0.5): "1 -1 -3 -6 -8 -10 -12 -14 -16 -21.5 -23.5 -25.5 -27.5 -29.5 -31.5 -35.75 / "
    "1 -1 -3 -5 -7 -9 -15 -17 -19 -21 -23 -25 -29 -31 -33 -35",
    (1, 1): "1 -1 -3 -5 -7 -9 -11 -13 -15 -17 -19 -21 -23 -25 -27 -29 / "
    "1 -1 -3 -5 -7 -9 -11 -13 -15 -17 -19 -21 -23 -25 -27 -29",
}


@pytest.mark.parametrize(("late", "keep"), FIXTURES)
def test_weights_are_those_of_torchfts_fixtures(two, late, keep):
    first, second = ([float(each) for each in half.split()] for half in FIXTURES[late, keep].split("/"))
    for found in two.run(JOBS + "mocked", keep=keep, late=late, steps=15):
        assert [list(weights) for weights in zip(*found, strict=True)] == [first, second]


@pytest.mark.parametrize("saved_at", [8, 4])
def test_a_checkpoint_goes_on_within_a_sum_and_between_two(two, saved_at):
    """After step 8 the sum of the first fragment is under way."""
    given = {"keep": 0.5, "late": 1, "steps": 15}
    assert two.run(JOBS + "mocked", saved_at=saved_at, **given) == two.run(JOBS + "mocked", **given)


@pytest.mark.parametrize(("seed", "again"), [(0, "never"), (1, "loaded"), (2, "rebuilt")])
def test_what_all_gave_is_what_was_summed_and_what_is_kept(two, seed, again):
    found = two.run(JOBS + "kept", seed=seed, averages=3, again=again)
    for at in range(2):
        before = torch.zeros_like(found[0]["given"][0][at])
        for average in range(3):
            gave = before + sum(each["given"][average][at] for each in found)
            before = sum(each["kept"][average][at] for each in found)
            torch.testing.assert_close(2 * found[0]["made"][average][at] + before, gave, rtol=0, atol=2e-5)
            assert torch.equal(found[0]["made"][average][at], found[1]["made"][average][at])
    assert bool(before.any()) and found[0]["names"] == ["a", "b"]
    assert found[0]["sent"] < 6200 * 4 / 100, "a hundredth of the bytes of float32, headers and all"


@pytest.mark.parametrize(
    ("how", "id", "said"),
    [
        ("model", "needs-model", "whose values it knows from the start"),
        ("other", "needs-model", "whose values it knows from the start"),
        ("start", "different-options", "first parameters"),
        ("state", "bad-state", "it is of other parameters"),
        ("shape", "bad-state", "the anchor of 'w' is missing, or of another shape"),
        ("words", "bad-state", "this is no state of averaging 'diloco'"),
        ("no sum", "bad-state", "the flat of 'w' is missing"),
        ("no residuals", "bad-state", "no state of a scheme that leaves something out"),
        ("dtype", "unsupported-dtype", "torch.float64"),
    ],
)
def test_what_an_outer_optimizer_can_not_go_on_from_is_refused(two, how, id, said):
    for found in two.run(JOBS + "outer_refused", how=how):
        assert found[0] == id and said in found[1], found
