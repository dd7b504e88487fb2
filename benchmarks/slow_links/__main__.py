"""Training on slow links in many ways, among hosts that this machine plays; writes benchmarks/reports/slow_links.md.

    python -m benchmarks.slow_links --write                                   # the page, of the results that there are
    python -m benchmarks.slow_links --race --hosts 4 --seeds 1 2 3 --write    # seconds and bytes to an equal loss
    python -m benchmarks.slow_links --equal --seeds 1 2 --write               # losses after equal steps

Each way trains the character model of the convergence page, one after the other, from equal weights and on equal
batches. Runs that are there already with the same hosts and seed are replaced. It takes root, and an idle machine.

    Found = races: Run*  equal: Run*
    Run   = way  hosts  seed  others  points  processor    # others: their share of the cores
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterable
from itertools import product
from pathlib import Path

from benchmarks.lab.launch import Others
from benchmarks.pages import json_of, new_parser, rounded
from benchmarks.slow_links.page import FIGURES, HOSTS, PART, Found, Run, figure, page_of
from benchmarks.slow_links.ways import BY_NAME, GOAL
from zenc.lab.cluster import EmulatedCluster
from zenc.lab.ranks import run_ranks

RATE, UNSHAPED = "100mbit", "10gbit"
LIMIT, STEPS = 300.0, 2100
"""Seconds after which a way is given up, and equal steps: whole rounds of all averagings."""


def measured(way: str, hosts: int, seed: int, rate: str, limits: Iterable[float]) -> Run:
    """Return a run of ``way``; ``limits`` are the worker's goal, seconds and steps. Exits if a rank fails."""
    said: list[str] = []
    script = ["-m", "benchmarks.slow_links.worker", way, str(seed), *map(str, limits)]
    others = Others()
    found = run_ranks(EmulatedCluster(hosts, rate), script, 1, lambda rank, line: said.append(line))
    if found.status:
        sys.exit("\n".join(said))
    of = next(json.loads(line) for line in said if line.startswith('{"points"'))
    print(f"{way}, {hosts} hosts, seed {seed}: {of['points'][-1]}", file=sys.stderr)
    return {"way": way, "hosts": hosts, "seed": seed, "others": others.share(), **of}


def added(kept: list[Run], run: Run) -> list[Run]:
    """Return ``kept`` with ``run`` in place of an earlier one."""
    same, order = ("way", "hosts", "seed"), list(BY_NAME)
    runs = [each for each in kept if [each[key] for key in same] != [run[key] for key in same]]
    return sorted([*runs, rounded(run)], key=lambda of: (of["hosts"], order.index(of["way"]), of["seed"]))


def save(file: Path, found: Found) -> None:
    """Write ``found`` to ``file``, a line a run."""
    kinds = (f' "{kind}": [\n  ' + ",\n  ".join(map(json.dumps, runs)) + "\n ]" for kind, runs in found.items())
    file.write_text("{\n" + ",\n".join(kinds) + "\n}\n", encoding="utf-8")


def parser() -> ArgumentParser:
    made = new_parser(__doc__, "benchmarks.slow_links")
    names = list(BY_NAME)
    made.add_argument("--race", action="store_true", help=f"to {GOAL} bits a character on links of {RATE}")
    made.add_argument("--equal", action="store_true", help=f"{STEPS} steps of each, on links that are not slow")
    made.add_argument("--only", nargs="+", choices=names, default=names, metavar="WAY", help=" ".join(names))
    made.add_argument("--hosts", type=int, default=HOSTS[0])
    made.add_argument("--seeds", type=int, nargs="+", default=[1], metavar="SEED")
    made.add_argument("--limit", type=float, default=LIMIT, help=f"seconds of a race ({LIMIT:g})")
    made.add_argument("--steps", type=int, default=STEPS, help=f"with --equal ({STEPS})")
    made.add_argument("--json", type=Path, default=PART.results, help="results to add to (those of the page)")
    made.add_argument("--write", action="store_true", help=f"{PART.page.name} and its figures, of the page's results")
    return made


def main() -> None:
    options = parser().parse_args()
    found = json_of(options.json) if options.json.exists() else {"races": [], "equal": []}
    plans = {
        "races": (options.race, RATE, (GOAL, options.limit, 10**9)),
        "equal": (options.equal, UNSHAPED, (0, 10**9, options.steps)),
    }
    for kind, (asked, rate, limits) in plans.items():
        ways = [name for name in options.only if asked and (kind == "equal" or BY_NAME[name].raced)]
        for seed, name in product(options.seeds, ways):
            run = measured(name, options.hosts, seed, rate, limits)
            if kind == "equal":
                run["points"] = run["points"][-1:]
            found[kind] = added(found[kind], run)
            save(options.json, found)
    if options.write:
        PART.write(page_of(found))
        for hosts in HOSTS:
            (FIGURES / f"{hosts}.svg").write_text(figure(found, hosts), encoding="utf-8")


if __name__ == "__main__":
    main()
