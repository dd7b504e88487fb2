"""The hunt: many seeds played, and what they broke."""

from __future__ import annotations

import gc
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.faults.play import Outcome, play
from tests.faults.promises import broken
from tests.faults.scenario import Scenario, scenario_of

KEEPS = 20
"""Broken seeds that a report has at most."""


@dataclass
class Findings:
    """Counts of what came of some seeds. ``calls``: their outcomes by id; ``faults``: those that happened, by kind."""

    seeds: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    schemes: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    switches: int = 0
    virtual_seconds: float = 0.0
    seconds: float = 0.0
    objects: int = 0
    """By which the objects of this process have become more."""
    broken: dict[int, list[str]] = field(default_factory=dict)

    def add(self, outcome: Outcome, lines: list[str]) -> None:
        """Count one run."""
        scenario = outcome.scenario
        self.seeds += 1
        self.calls.update(record.outcome or "unfinished, as its rank" for record in outcome.records if record.call)
        self.faults.update(fault.kind for fault, _ in outcome.happened)
        self.schemes.update(scenario.schemes)
        self.changes.update([scenario.change.kind] if scenario.change else [])
        self.switches += outcome.switches
        self.virtual_seconds += outcome.seconds
        if lines:
            self.broken[scenario.seed] = lines


def hunt(
    seeds: Iterable[int], most: int = KEEPS, of: Callable[[int], Scenario] = scenario_of, seconds: float = math.inf
) -> Findings:
    """Play ``seeds``, until ``most`` of them break a promise, or ``seconds`` are over."""
    found, began = Findings(), time.perf_counter()
    before = 0
    for number, seed in enumerate(seeds):
        if number == WARM:
            gc.collect()
            before = len(gc.get_objects())
        outcome = play(of(seed))
        found.add(outcome, broken(outcome))
        if len(found.broken) >= most or time.perf_counter() - began > seconds:
            break
    gc.collect()
    found.objects = len(gc.get_objects()) - before if before else 0
    found.seconds = time.perf_counter() - began
    return found


WARM = 300
"""Seeds after which all that is kept for the whole process has been made."""
