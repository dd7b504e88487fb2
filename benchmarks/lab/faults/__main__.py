"""Collectives over networks that lose, double and reorder packets, and with hosts that fail: what became of each call.

    python -m benchmarks.lab.faults                                 all of it, into benchmarks/results and its page
    python -m benchmarks.lab.faults --only 'a link down for good'   a part, printed

Four hosts with links of 100 Mbit/s, in namespaces of this machine; no root is needed. Each scheme makes its calls over
zenc's own connections, and over gloo. A call must end on each rank with the exact sum, or with an error before its
deadline; where it ends with an error it must have to, and one rank must name the host that failed.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.lab.faults.disturbances import AFTER, DEADLINE, DISTURBANCES, RANKS, SCHEMES, WAYS
from benchmarks.lab.faults.run import CALLS, RATE, trials
from benchmarks.lab.options import carry_out
from benchmarks.lab.settings import LabError
from benchmarks.lab.worker import machine
from benchmarks.pages import DOCS, LEFT, RESULTS, RIGHT, Part, new_parser, table
from zenc.lab.impairment import why_not

MARKS = "<!-- table: written by benchmarks.lab.faults -->", "<!-- end of table -->"
PART = Part(DOCS / "internals" / "liveness.md", *MARKS, RESULTS / "faults.json")


def main() -> int:
    parser = new_parser(__doc__, "benchmarks.lab.faults")
    names = [each.name for each in DISTURBANCES]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=f"{'; '.join(names)}")
    parser.add_argument("--schemes", nargs="+", default=list(SCHEMES), metavar="SCHEME")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="results (of all: benchmarks/results/faults.json)")
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    carry_out(lambda: tried(options, found))
    broken = [line for trial in found for line in trial["broken"]]
    print("\n".join(broken), end="\n" if broken else "", file=sys.stderr)
    return 1 if broken else 0


def tried(options: argparse.Namespace, found: list[dict[str, Any]]) -> str:
    """Make the trials, add them to ``found``, and return the table; raises LabError where the network can't be made."""
    if missing := why_not():
        raise LabError(f"faults of a network take {missing}")
    began = time.monotonic()
    chosen = [each for each in DISTURBANCES if each.name in options.only]
    found += [trial.to_json() for trial in trials(chosen, options.schemes, options.ways)]
    whole = (chosen, options.schemes, options.ways) == (list(DISTURBANCES), list(SCHEMES), list(WAYS))
    report = {**about(time.monotonic() - began), "trials": found}
    return PART.keep(options.json or (PART.results if whole else None), report, markdown(found))


def about(seconds: float) -> dict[str, Any]:
    return {
        "ranks": RANKS, "rate": RATE, "calls": CALLS, "deadline": DEADLINE, "after": AFTER,
        "load_average": round(os.getloadavg()[1], 1), "seconds": round(seconds), **machine(),
    }  # fmt: skip


def markdown(found: Sequence[dict[str, Any]]) -> str:
    """Return a row for each disturbance, of all its schemes and ways."""
    schemes = list(dict.fromkeys(trial["scheme"] for trial in found))
    heads = ("disturbed by", "sums", *(f"`{name}`, s" for name in schemes), "errors", "after, s", "sent again")
    ways = (LEFT, RIGHT, *[RIGHT] * len(schemes), LEFT, RIGHT, RIGHT)
    by_name = ([trial for trial in found if trial["disturbance"] == each.name] for each in DISTURBANCES)
    return table(heads, ways, (_row(of) for of in by_name if of))


def _row(of: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Return the row of a disturbance; figures of the ways stand beside each other where they differ."""
    ways = [each for way in WAYS if (each := [trial for trial in of if trial["way"] == way])]

    def told(figure: Callable[[list[dict[str, Any]]], str]) -> str:
        return "/".join(dict.fromkeys(map(figure, ways)))

    errors = sorted({error for trial in of for error in trial["errors"]})
    slowest = ("/".join(dict.fromkeys(f"{trial['slowest']:.2f}" for trial in each)) for each in zip(*ways, strict=True))
    after = told(lambda way: f"{max(trial['latest_error'] for trial in way):.1f}") if errors else ""
    again = told(lambda way: str(sum(trial["tcp"].get("retransmitted", 0) for trial in way)))
    sums = told(lambda way: str(sum(trial["sums"] for trial in way)))
    return of[0]["disturbance"], sums, *slowest, ", ".join(f"`{error}`" for error in errors), after, again


if __name__ == "__main__":
    sys.exit(main())
