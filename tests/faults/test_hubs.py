"""The compiled hub of connections in the simulator, over links on which headers are damaged."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from tests.faults.play import play
from tests.faults.promises import broken
from tests.faults.scenario import Fault, Scenario, scenario_of

SEEDS = 100


def damaged(seed: int) -> Scenario:
    """Return the scenario of ``seed``, with the headers of one message damaged."""
    of, random_ = scenario_of(seed), random.Random(seed)
    rank, peer = random_.sample(range(of.size), 2)
    flip = random_.choice((1 << random_.randrange(8), 0xFF, random_.randrange(1, 256)))
    fault = Fault("damages", rank, random_.randrange(20), peer, 0.0, byte=random_.randrange(80), flip=flip)
    return replace(of, faults=(fault,), change=None, hubs=True, rejoins=False)


def test_a_damaged_header_ends_in_an_error_and_never_in_a_wrong_sum() -> None:
    found, outcomes = {}, Counter[str]()
    for seed in range(SEEDS):
        outcome = play(damaged(seed))
        if lines := broken(outcome):
            found[seed] = lines
        outcomes.update(record.outcome for record in outcome.records if record.call)
    assert found == {}
    assert min(outcomes[each] for each in ("sum", "deadline", "peer-lost")) > 5, outcomes


def test_the_hub_keeps_the_promises_that_streams_keep() -> None:
    found = {}
    for seed in range(1, 2 * SEEDS, 4):
        if lines := broken(play(replace(scenario_of(seed), hubs=True))):
            found[seed] = lines
    assert found == {}
