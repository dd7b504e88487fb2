"""The run time in the simulator: thousands of runs with faults, each from a seed, break no promise."""

from __future__ import annotations

from tests.faults.hunt import hunt
from tests.faults.play import play
from tests.faults.scenario import scenario_of

SEEDS = 2000


def test_seeds_break_no_promise() -> None:
    """A seed that does is played again by ``python -m tests.faults --replay SEED``."""
    found = hunt(range(SEEDS))
    assert found.broken == {}
    assert found.seeds == SEEDS
    assert set(found.faults) == {"kills", "vanishes", "freezes", "stalls", "cuts", "slows", "raises"}
    assert set(found.changes) == {"swaps", "skips", "reshapes", "averages", "another"}
    assert min(found.calls[outcome] for outcome in ("sum", "deadline", "peer-lost", "different-calls")) > SEEDS / 10
    assert found.objects < SEEDS, "what a run has made goes when it is over"


def test_a_seed_plays_the_same_again() -> None:
    for seed in range(40, 60):
        one, other = play(scenario_of(seed)), play(scenario_of(seed))
        assert (one.digest, one.switches, one.seconds) == (other.digest, other.switches, other.seconds)
        assert [str(record) for record in one.records] == [str(record) for record in other.records]
