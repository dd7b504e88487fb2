"""Soak: real processes that sum for an hour, in groups that come and go, while some are stopped, killed or cut off.

    make soak                                   an hour, and a report in tests/golden/faults/soak.json
    python -m tests.soak --seconds 600          shorter
    python -m tests.soak --seed 7 --round 31    one round again: the same ranks, tensors and mishap

Every sum is compared with the exact one. A resource of a lasting process is flat unless, in all but the first quarter
of the run, it rises beyond chance (Mann and Kendall, 3.3 sigma) and by more (Theil and Sen) than a share of its
median, which the report gives, or 1 MB, or a count of 1.5.
"""

import argparse
import json
import os
import secrets
import sys
import time
from pathlib import Path
from typing import Any

from tests.soak.processes import SoakedProcesses
from tests.soak.resources import TOLERATED
from tests.soak.rounds import LASTING, MORTAL, round_of
from tests.soak.soaking import Soak, SoakFindings

REPORT = Path(__file__).resolve().parents[1] / "golden" / "faults" / "soak.json"


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__, formatter_class=raw)
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no round after so long (3600)")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="another one each time, which is told")
    parser.add_argument("--round", type=int, help="play this round alone")
    parser.add_argument("--json", type=Path, help="write a report there")
    given = parser.parse_args()
    print(f"seed {given.seed}", file=sys.stderr)
    numbers = range(sys.maxsize) if given.round is None else range(given.round, given.round + 1)
    if given.round is not None:
        print(round_of(given.seed, given.round))
    began = time.monotonic()
    with SoakedProcesses() as processes:
        found = Soak(processes).run(given.seed, numbers, given.seconds)
    report = report_of(found, given.seed, time.monotonic() - began)
    text = json.dumps(report, indent=1) + "\n"
    print(text, end="")
    if is_good(report):
        print(in_words(report))
    if given.json:
        given.json.write_text(text, encoding="utf-8")
    return 0 if is_good(report) else 1


def is_good(report: dict[str, Any]) -> bool:
    """Return whether a soak found nothing: no wrong sum, false alarm, stall or leak, and mishaps of all kinds."""
    return not (report["failures"] or report["rising"] or report["missing"])


def report_of(found: SoakFindings, seed: int, seconds: float) -> dict[str, Any]:
    return {
        "seed": seed,
        "seconds": round(seconds),
        "load_average": round(os.getloadavg()[2], 1),
        "processes": {"lasting": len(LASTING), "mortal": len(MORTAL)},
        "rounds": found.rounds,
        "samples": max((len(samples) for samples in found.usage.values()), default=0),
        "outcomes_of_calls": dict(found.outcomes.most_common()),
        "planned": dict(found.planned.most_common()),
        "mishaps": dict(found.mishaps.most_common()),
        "ways": dict(found.ways.most_common()),
        "schemes": dict(found.schemes.most_common()),
        "longest_without_a_sum": round(found.longest_without_a_sum, 1),
        "failures": found.failures,
        "rising": found.rising(),
        "missing": found.missing(),
        "may_rise_by": {name: f"{share:.0%} of the median, or 1: {what}" for name, (share, what) in TOLERATED.items()},
        "resources": {
            f"process {slot}, {name}": {
                "median": round(of.median, 1),
                "rises": round(of.rises, 2),
                "sigma": round(of.sure, 1),
                "course": " ".join(f"{used[name]:g}" for used in course(found, slot)),
            }
            for slot, name, of in found.trends()
        },
    }


def in_words(report: dict[str, Any]) -> str:
    """Return the words of the page about faults for a soak."""
    resources = report["resources"]

    def came(kind: str) -> int:
        return int(report["mishaps"].get(kind, 0))

    def risen(name: str) -> str:
        most = max((of["rises"] for what, of in resources.items() if what.endswith(name)), default=0.0)
        return f"rose by {most:.1f} MB at most" if most > 0 else "did not rise"

    return (
        f"a soak of {report['seconds'] / 60:.0f} minutes, which had {report['rounds']:,} rounds and "
        f"{report['outcomes_of_calls']['sum']:,} sums by {len(report['schemes'])} schemes, none of them wrong. "
        f"{came('kills')} processes were killed, {came('pauses')} stopped for a moment and {came('freezes')} for "
        f"longer than the deadline, {came('cuts')} connections were cut, and {came('reshapes')} ranks brought "
        f"another shape. The longest time without a sum was {report['longest_without_a_sum']:.0f} s. "
        f"In all but its first quarter `own_mb`, about {median_of(resources, 'own_mb'):.0f} MB, {risen('own_mb')}, "
        f"and `heap_mb`, about {median_of(resources, 'heap_mb'):.0f} MB, {risen('heap_mb')}."
    )


def median_of(resources: dict[str, Any], name: str) -> float:
    """Return the largest median of the lasting processes."""
    return max((float(of["median"]) for what, of in resources.items() if what.endswith(name)), default=0.0)


def course(found: SoakFindings, slot: int) -> list[dict[str, float]]:
    """Return a dozen samples at most of a process's resources."""
    samples = found.usage[slot]
    return [used for _, used in samples[:: max(1, len(samples) // 12)]]


if __name__ == "__main__":
    sys.exit(main())
