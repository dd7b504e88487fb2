"""``python -m tests.faults``: play seeds, or one again with all that happens in it."""

import argparse
import json
import math
import sys
from functools import partial
from pathlib import Path

from tests.faults.hunt import PIECE, Findings, findings_of, hunt, report_of
from tests.faults.play import play
from tests.faults.promises import broken
from tests.faults.scenario import scenario_of


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds to play")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first one")
    parser.add_argument("--replay", type=int, help="play this seed alone, and tell all of it")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no seed after so long")
    parser.add_argument("--json", type=Path, help=f"write a report there, after every {PIECE} seeds")
    parser.add_argument("--resume", action="store_true", help="go on from the seeds that the report has")
    given = parser.parse_args()
    if given.replay is not None:
        return replay(given.replay)
    found = findings_of(json.loads(given.json.read_text())) if given.resume and given.json.exists() else Findings()
    seeds = range(given.first + found.seeds, given.first + given.seeds)
    write = partial(written, given.first, given.json)
    write(hunt(seeds, seconds=given.seconds, found=found, tell=write))
    print(json.dumps(report_of(found, given.first), indent=1))
    for seed in found.broken:
        print(f"again: python -m tests.faults --replay {seed}", file=sys.stderr)
    return 1 if found.broken else 0


def written(first: int, path: Path | None, found: Findings) -> None:
    """Write a report at ``path`` that is complete at any time."""
    if path:
        new = path.with_suffix(".new")
        new.write_text(json.dumps(report_of(found, first), indent=1) + "\n")
        new.replace(path)


def replay(seed: int) -> int:
    """Play ``seed``, and print the scenario, the events, and the promises that break."""
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
