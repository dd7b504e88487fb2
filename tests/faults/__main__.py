"""``python -m tests.faults``: play seeds, or one again with all that happens in it."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from pathlib import Path

from tests.faults.hunt import Findings, hunt
from tests.faults.play import play
from tests.faults.promises import broken
from tests.faults.scenario import scenario_of


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds to play")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first one")
    parser.add_argument("--replay", type=int, help="play this seed alone, and tell all of it")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no seed after so long")
    parser.add_argument("--json", type=Path, help="write a report there")
    given = parser.parse_args()
    if given.replay is not None:
        return replay(given.replay)
    found = hunt(range(given.first, given.first + given.seeds), seconds=given.seconds)
    report = report_of(found, given.first)
    text = json.dumps(report, indent=1)
    print(text)
    if given.json:
        given.json.write_text(text + "\n")
    for seed in found.broken:
        print(f"again: python -m tests.faults --replay {seed}", file=sys.stderr)
    return 1 if found.broken else 0


def report_of(found: Findings, first: int) -> dict[str, object]:
    """What a report has: JSON data."""
    return {
        "seeds": found.seeds,
        "first": first,
        "broken": {str(seed): lines for seed, lines in found.broken.items()},
        "outcomes_of_calls": dict(found.calls.most_common()),
        "faults": dict(found.faults.most_common()),
        "changes": dict(found.changes.most_common()),
        "schemes": dict(found.schemes.most_common()),
        "handovers": found.switches,
        "simulated_hours": round(found.virtual_seconds / 3600, 1),
        "objects_left": found.objects,
        "seconds": round(found.seconds, 1),
        "load_average": round(os.getloadavg()[0], 1),
    }


def replay(seed: int) -> int:
    """Play ``seed``, and say what it is, what happens, and what of it breaks a promise."""
    outcome = play(scenario_of(seed))
    print(outcome.scenario)
    for fault, time in outcome.happened:
        print(f"{time:10.3f} s  {fault}")
    for record in sorted(outcome.records, key=lambda record: (record.generation, record.rank, record.number)):
        what = f"call {record.number}" if record.call else "loading"
        print(
            f"group {record.generation}, rank {record.rank}, {what}: {record.began:.3f} to {record.ended:.3f} s,"
            f" {record.outcome or 'unfinished'} {record.text}"
        )
    lines = broken(outcome)
    print("\n".join(lines) or "it breaks no promise")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
