"""Averagers on real gloo processes: means of groups, and of all after a period; one step on all ranks."""

from __future__ import annotations

import pytest
import torch

from tests.support.generations import lives
from tests.torch.averaging_jobs import parameters
from zenc.averaging.model import EvenDivision, Shuffled

JOBS = "tests.torch.averaging_jobs:"


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
