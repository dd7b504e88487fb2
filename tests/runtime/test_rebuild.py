"""Collectives that go on in the same processes after one has died: among fewer ranks, and with a new one."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

import zenc
from tests.support.generations import Join, dies, lives, open_things
from zenc.errors import SynchronisationError

UNITS, CALLS = 64, 3
DEADLINE = 20.0


def gradient(member: int, group: int, call: int) -> torch.Tensor:
    """Return small integers, of which float32 sums are exact."""
    chance = torch.Generator().manual_seed(100 * member + 10 * group + call)
    return torch.randint(-50, 51, (UNITS,), generator=chance).float()


def over_a_death(
    member: int,
    join: Join,
    groups: list[list[int]],
    scheme: str,
    dying: int,
    shape: tuple[int, ...] = (UNITS,),
    **params: int,
) -> Any:
    """Return sums in each group, residuals at its start and end, and the error of the call in which a rank died."""
    found: dict[str, Any] = {"sums": [], "kept": [], "counts": []}
    collective = None
    for number, members in enumerate(groups):
        if member not in members:
            continue
        join(number)
        collective = collective.rebuild() if collective else zenc.load(scheme, deadline=DEADLINE, params=params)
        begun = kept(collective)
        calls = [gradient(member, number, call).view(shape) for call in range(CALLS)]
        found["sums"].append([collective.all_reduce(each, name="w").clone() for each in calls])
        found["kept"].append((begun, kept(collective)))
        found["counts"].append({n: c[:2] for n, c in collective.keeper.counts().items()} if collective.keeper else {})
        if number + 1 < len(groups):
            found["died"] = failing(collective, member == dying, shape)
    found["decisions"] = [str(each.scheme) for each in collective.decisions] if collective else []
    return found


def kept(collective: zenc.Collective) -> torch.Tensor:
    known = collective.keeper is not None and "w" in collective.keeper.counts()
    return collective.residual("w").flatten() if known else torch.zeros(UNITS)


def failing(collective: zenc.Collective, dying: bool, shape: tuple[int, ...]) -> str:
    """Return the id of the error of a call during which one rank dies."""
    if dying:
        dies()
    try:
        collective.all_reduce(torch.ones(shape), name="w")
    except SynchronisationError as error:
        return error.diagnostics[0].id
    return "nothing failed"


def again_and_again(member: int, join: Join, groups: list[list[int]], times: int) -> Any:
    """Return sums over a group that is broken and rebuilt repeatedly, and open files after each time."""
    group = join(0)
    collective = zenc.load("balanced", group, deadline=DEADLINE)
    found = []
    for _ in range(times):
        work = collective.all_reduce(torch.ones(UNITS), async_op=True)  # so that there are threads
        total = float(work.wait().sum())
        collective.communicator.abort(SynchronisationError([]), None)
        collective = collective.rebuild(group)
        del work
        open_now, until = open_things(), time.monotonic() + 10
        while found and open_now[0] > found[0][1] and time.monotonic() < until:
            time.sleep(0.01)  # threads of the old group end when they have their turn
            open_now = open_things()
        found.append((total, *open_now))
    return found


JOBS = "tests.runtime.test_rebuild:"
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
