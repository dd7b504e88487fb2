"""Training on slow links in many ways, among hosts that this machine plays; writes benchmarks/reports/slow_links.md.

    python -m benchmarks.slow_links --write                           # the page, of the results that there are
    python -m benchmarks.slow_links race --seeds 1 2 3 --write        # seconds and bytes to an equal loss
    python -m benchmarks.slow_links equal --only ddp sparse_loco      # losses after equal steps, on links that are fast
    python -m benchmarks.slow_links words --only ddp power_sgd        # the same with words, 2,048 of them
    python -m benchmarks.slow_links shared --only ddp diloco          # a race on the clock of the machine

In a race time is dilated (Gupta et al., NSDI 2006): where a core plays two hosts, links have half of their rate and a
second counts as half of one, so each host has a core of its own. Each way trains the character model of the convergence
page. A run takes the place of an earlier one with the same hosts and seed. It takes root, and an idle machine.

    Found = Run*
    Run   = kind  way  hosts  seed  others  dilation  points  processor
    # others: their share of the cores; dilation: seconds of the machine in one of the points
"""

import json
import os
import sys
from argparse import ArgumentParser
from itertools import product
from pathlib import Path
from tempfile import NamedTemporaryFile

import torch

from benchmarks.convergence.characters import text
from benchmarks.lab.launch import Others
from benchmarks.pages import json_of, new_parser, rounded
from benchmarks.slow_links.page import FIGURES, GUIDE, HOSTS, PART, Found, Run, figure, page_of, verdicts
from benchmarks.slow_links.ways import BY_NAME, GOAL
from zenc.lab.cluster import EmulatedCluster
from zenc.lab.ranks import run_ranks

SLOW, FAST = (100, GOAL, 300, 10**9), (10_000, 0, 10**9, 2100)
KINDS = {"race": SLOW, "shared": SLOW, "equal": FAST, "words": FAST}
"""Mbit/s of links, and the bits, the seconds and the steps that end a run: whole rounds of all averagings."""


def measured(kind: str, way: str, hosts: int, seed: int) -> Run:
    """Return a run of ``way``; exits if a rank fails."""
    said: list[str] = []
    (rate, goal, seconds, steps), others = KINDS[kind], Others()
    dilation = max(1.0, hosts / len(os.sched_getaffinity(0))) if kind == "race" else 1.0
    with NamedTemporaryFile() as file:
        of = text(words=kind == "words")
        torch.save((of.train, of.held_out, of.symbols), file.name)
        limits = map(str, (goal, seconds * dilation, steps))
        script = ["-m", "benchmarks.slow_links.worker", way, file.name, str(seed), *limits]
        cluster = EmulatedCluster(hosts, f"{rate / dilation:g}mbit")
        found = run_ranks(cluster, script, 1, lambda rank, line: said.append(line))
    if found.status:
        sys.exit("\n".join(said))
    run = next(json.loads(line) for line in said if line.startswith('{"points"'))
    points = [(took / dilation, *rest) for took, *rest in run["points"]]
    print(f"{way}, {hosts} hosts, seed {seed}: {points[-1]}", file=sys.stderr)
    run["points"] = points if kind == "race" else points[-1:]
    run |= {"others": others.share(), "dilation": dilation}
    return {"kind": kind, "way": way, "hosts": hosts, "seed": seed, **run}


def save(file: Path, found: Found) -> None:
    """Write ``found`` to ``file``, a line a run."""
    lines = [f" {json.dumps(key)}: {json.dumps(rounded(run))}" for key, run in sorted(found.items())]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def parser() -> ArgumentParser:
    made, names = new_parser(__doc__, "benchmarks.slow_links"), list(BY_NAME)
    made.add_argument("kind", nargs="?", choices=list(KINDS), help="what to measure; default: nothing")
    made.add_argument("--only", nargs="+", choices=names, default=names, metavar="WAY", help=" ".join(names))
    made.add_argument("--hosts", type=int, default=HOSTS[0])
    made.add_argument("--seeds", type=int, nargs="+", default=[1], metavar="SEED")
    made.add_argument("--json", type=Path, default=PART.results, help="results to add to (those of the page)")
    made.add_argument("--write", action="store_true", help=f"{PART.page.name} and its figures, of these results")
    return made


def main() -> None:
    options = parser().parse_args()
    found = json_of(options.json) if options.json.exists() else {}
    for seed, name in product(options.seeds, options.only if options.kind else ()):
        if KINDS[options.kind] is not SLOW or BY_NAME[name].raced:
            key = f"{options.kind} {options.hosts} {name} {seed}"
            found[key] = measured(options.kind, name, options.hosts, seed)
            save(options.json, found)
    if options.write:
        PART.write(page_of(found))
        GUIDE.write(verdicts(found))
        for hosts in HOSTS:
            (FIGURES / f"{hosts}.svg").write_text(figure(found, hosts), encoding="utf-8")


if __name__ == "__main__":
    main()
