"""Jobs of processes whose groups fail and are rebuilt: their sums and residuals."""

from __future__ import annotations

import time
from typing import Any

import torch

import zenc
from tests.support.generations import Join, dies, open_things
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
    **params: float,
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
