"""Collectives that go on in the same processes after one has died: among fewer ranks, and with a new one."""

from __future__ import annotations

import pytest
import torch

from tests.runtime.rebuild_jobs import CALLS, UNITS, gradient
from tests.support.generations import lives

JOBS = "tests.runtime.rebuild_jobs:"
FEWER, ANOTHER, MORE = [(0, 1, 2), (0, 2)], [(0, 1, 2), (2, 3, 0)], [(0, 1), (0, 2, 3)]


@pytest.mark.parametrize("groups", [FEWER, ANOTHER, MORE], ids=["fewer", "another", "more"])
def test_a_rank_is_killed_and_the_others_go_on(groups: list[tuple[int, ...]]) -> None:
    found = lives(JOBS + "over_a_death", groups, scheme="balanced", dying=1)
    assert found.keys() == {member for group in groups for member in group} - {1}
    for number, members in enumerate(groups):
        expected = [sum(gradient(member, number, call) for member in members) for call in range(CALLS)]
        for member in set(members) - {1}:
            sums = found[member]["sums"][number if member in groups[0] else 0]
            assert torch.equal(torch.stack(sums), torch.stack([torch.as_tensor(each) for each in expected]))
    assert {found[member]["died"] for member in set(groups[0]) - {1}} <= {"peer-lost"}


@pytest.mark.parametrize("groups", [FEWER, ANOTHER], ids=["fewer", "another"])
def test_nothing_of_a_survivor_is_lost(groups: list[tuple[int, ...]]) -> None:
    """Sums and residuals of the second group are the survivors' residuals and gradients."""
    found = lives(JOBS + "over_a_death", groups, scheme="topk_a2a", dying=1)
    survivors = [member for member in groups[1] if member in groups[0]]
    for member in survivors:
        (_, ended), (begun, _) = found[member]["kept"]
        assert ended.any() and torch.equal(ended, begun), "the call that failed has changed nothing"
    last = [found[member] for member in groups[1]]
    assert all(each["counts"][-1] == {"w": ((UNITS,), 2 * CALLS)} for each in last), "a new rank counts on, too"
    given = sum(gradient(member, 1, call) for member in groups[1] for call in range(CALLS))
    before = sum(each["kept"][-1][0] for each in last)
    after = sum(each["kept"][-1][1] for each in last)
    assert torch.equal(torch.stack(last[0]["sums"][-1]).sum(0) + after, before + given)


@pytest.mark.parametrize("groups", [FEWER, ANOTHER], ids=["fewer", "another"])
def test_what_all_have_sent_is_that_of_those_that_are_there(groups: list[tuple[int, ...]]) -> None:
    """After a rank has died results are again the sum of what each rank of the group has sent."""
    found = lives(JOBS + "over_a_death", groups, scheme="ef21", dying=1, density=0.2)
    last = [found[member] for member in groups[1]]
    sums = [each["sums"][-1][-1] for each in last]
    assert all(torch.equal(each, sums[0]) for each in sums) and sums[0].any()
    assert torch.equal(sums[0], -sum(each["kept"][-1][1] for each in last))


def test_all_ranks_go_on_in_one_basis_also_a_new_one() -> None:
    """Sums of matrices of low rank are equal bits after a rebuild, and what they miss is kept."""
    found = lives(JOBS + "over_a_death", ANOTHER, scheme="power_sgd", dying=1, shape=(8, 8), r=1)
    last = [found[member] for member in ANOTHER[1]]
    sums = [torch.stack(each["sums"][-1]) for each in last]
    assert all(torch.equal(each, sums[0]) for each in sums) and sums[0][0].count_nonzero() == UNITS
    given = sum(gradient(member, 1, call) for member in ANOTHER[1] for call in range(CALLS))
    before, after = (sum(each["kept"][-1][at] for each in last) for at in (0, 1))
    assert torch.allclose(sums[0].sum(0).flatten() + after, before + given, atol=1e-3)


def test_nothing_stays_open() -> None:
    for counted in lives(JOBS + "again_and_again", [(0, 1)], times=4).values():
        assert [total for total, *_ in counted] == [2.0 * UNITS] * 4
        (_, threads, files), *_, (_, last_threads, last_files) = counted[1:]
        assert last_threads <= threads and last_files <= files, counted
