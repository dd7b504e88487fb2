"""The hunt: many seeds played, with the promises that they broke."""

import gc
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.faults.play import Outcome, play
from tests.faults.promises import broken
from tests.faults.scenario import Scenario, scenario_of

KEEPS = 20
"""Most broken seeds in a report."""
PIECE = 1000
"""Seeds between two reports of a run that can be resumed."""


@dataclass
class Findings:
    """Counts over some seeds. ``calls``: outcomes by id; ``faults``: those that happened, by kind."""

    seeds: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    schemes: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    switches: int = 0
    virtual_seconds: float = 0.0
    seconds: float = 0.0
    """Processor time."""
    objects: int = 0
    """Growth of the number of objects in this process."""
    broken: dict[int, list[str]] = field(default_factory=dict)

    def add(self, outcome: Outcome, lines: list[str]) -> None:
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
    seeds: Iterable[int],
    most: int = KEEPS,
    of: Callable[[int], Scenario] = scenario_of,
    seconds: float = math.inf,
    found: Findings | None = None,
    tell: Callable[[Findings], None] = lambda _: None,
) -> Findings:
    """Play ``seeds``, until ``most`` of them break a promise, or ``seconds`` are over.

    They are added to those ``found`` before; ``tell`` gets all of them after every ``PIECE``.
    """
    found, began = found or Findings(), time.perf_counter()
    earlier, spent, before = found.seconds, time.process_time(), 0
    for number, seed in enumerate(seeds):
        if number == WARM:
            gc.collect()
            before = len(gc.get_objects())
        outcome = play(of(seed))
        found.add(outcome, broken(outcome))
        found.seconds = earlier + time.process_time() - spent
        if len(found.broken) >= most or time.perf_counter() - began > seconds:
            break
        if found.seeds % PIECE == 0:
            tell(found)
    gc.collect()
    found.objects = max(found.objects, len(gc.get_objects()) - before if before else 0)
    return found


def report_of(found: Findings, first: int) -> dict[str, Any]:
    """Return JSON data of the ``found`` results of seeds from ``first`` on."""
    return {
        "seeds": found.seeds,
        "first": first,
        "broken": {str(seed): lines for seed, lines in found.broken.items()},
        "outcomes_of_calls": dict(found.calls.most_common()),
        "faults": dict(found.faults.most_common()),
        "changes": dict(found.changes.most_common()),
        "schemes": dict(found.schemes.most_common()),
        "handovers": found.switches,
        "simulated_hours": round(found.virtual_seconds / 3600, 3),
        "objects_left": found.objects,
        "processor_seconds": round(found.seconds, 1),
    }


def findings_of(report: dict[str, Any]) -> Findings:
    """Return the findings of a report of ``report_of``, up to rounding."""
    counts = (Counter(report[name]) for name in ("outcomes_of_calls", "faults", "schemes", "changes"))
    virtual = report["simulated_hours"] * 3600
    numbers = report["handovers"], virtual, report["processor_seconds"], report["objects_left"]
    return Findings(report["seeds"], *counts, *numbers, {int(seed): lines for seed, lines in report["broken"].items()})


WARM = 300
"""Seeds after which everything cached for the whole process exists."""
