"""The simulator finds bugs: each planted one breaks a promise within 2,000 seeds, which hold without it."""

from __future__ import annotations

import pytest

from tests.faults.bugs import BUGS, planted
from tests.faults.hunt import hunt
from tests.faults.play import play
from tests.faults.promises import broken
from tests.faults.scenario import scenario_of


@pytest.mark.one_in(3)
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    with planted(bug):
        found = hunt(range(2000), most=1)
        (seed,) = found.broken
        again = broken(play(scenario_of(seed)))
    assert again == found.broken[seed], "a seed is played again by its number alone"
    assert broken(play(scenario_of(seed))) == []
