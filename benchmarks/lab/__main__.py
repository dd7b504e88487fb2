"""All-reduces compared on a slow network that this machine plays: hosts in network namespaces, links shaped by tbf.

    python -m benchmarks.lab --ranks 8 --rate 100mbit --schemes balanced holders --workload rows --density 0.02

That takes root. Without it the same runs over loopback, which says nothing about networks. Bytes come first: they are
exact and repeat. Times mean something only on a machine that does nothing else. The method is in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.lab.bounds import bounds
from benchmarks.lab.cluster import why_not
from benchmarks.lab.launch import launch
from benchmarks.lab.peers import TORCH
from benchmarks.lab.plots import plot
from benchmarks.lab.results import Report, report
from benchmarks.lab.settings import LabError, Settings, Workload, bits_per_second
from benchmarks.lab.show import table
from benchmarks.lab.workloads import KINDS, TRACE, trace_of, units_of, workload_of

SCHEMES = ("balanced", "holders", "sparcml", "agsparse")


def main() -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # by way of all that cleans up
    options = parser().parse_args()
    try:
        found = run(settings_of(options), options.limit)
    except LabError as error:
        raise SystemExit(f"lab: {error}") from error
    Console(width=None if sys.stdout.isatty() else 160).print(table(found))
    if options.json:
        Path(options.json).write_text(json.dumps(found.to_json(), indent=1) + "\n")
    if options.plot:
        Path(options.plot).write_text(plot(found))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.lab", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--ranks", type=int, default=8, metavar="N")
    made.add_argument("--network", choices=("auto", "shaped", "loopback"), default="auto")
    made.add_argument("--rate", default="100mbit", help="of every link, each way, as tc takes it (100mbit)")
    made.add_argument("--burst", type=int, default=70_000, metavar="BYTES", help="of the token bucket (70000)")
    made.add_argument("--queue", default="2mb", help="at every link, each way, as tc takes it (2mb)")
    made.add_argument("--workload", choices=(*KINDS, "trace"), default="rows")
    made.add_argument("--indices", metavar="FILE", help="a recorded trace (the first step of the language model)")
    made.add_argument("--density", type=float, metavar="D", help="share of units that a rank holds (rows 0.02)")
    made.add_argument("--units", type=int, metavar="U", help="rows (200000) or elements (4000000)")
    made.add_argument("--zipf", type=float, metavar="S", help="exponent units are drawn by, 0 for evenly (rows 1.05)")
    made.add_argument("--permuted", action="store_true", help="units in a random order instead of by frequency")
    made.add_argument("--schemes", nargs="*", default=list(SCHEMES), metavar="SCHEME", help="names or .zen files")
    made.add_argument("--peers", nargs="*", choices=TORCH, default=list(TORCH), metavar="PEER", help=" ".join(TORCH))
    made.add_argument("--reference", metavar="PEER", help="whose time the ratios are to (the first scheme)")
    made.add_argument("--rounds", type=int, default=15)
    made.add_argument("--dense-rounds", type=int, default=3, help="rounds with dense all-reduces (3)")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--limit", type=float, default=600.0, metavar="SECONDS", help="for all of it (600)")
    made.add_argument("--json", metavar="FILE", help="everything, with every sample")
    made.add_argument("--plot", metavar="FILE", help="bytes and times as an SVG")
    return made


def settings_of(options: argparse.Namespace) -> Settings:
    """Raises LabError for what can't be."""
    peers = tuple(dict.fromkeys([*options.schemes, *options.peers]))
    if not peers:
        raise LabError("there is nothing to compare; name --schemes, --peers or both")
    reference = options.reference or peers[0]
    if reference not in peers:
        raise LabError(f"--reference {reference} is not among {', '.join(peers)}")
    if min(options.ranks, options.rounds, options.dense_rounds) < 1:
        raise LabError("--ranks, --rounds and --dense-rounds are 1 or more")
    bits_per_second(options.rate)
    return Settings(
        ranks=options.ranks,
        rate=rate_of(options.network, options.rate),
        burst=options.burst,
        queue=options.queue,
        workload=workload_in(options),
        peers=peers,
        reference=reference,
        rounds=options.rounds,
        dense_rounds=options.dense_rounds,
        warm_up=2,
        seed=options.seed,
    )


def workload_in(options: argparse.Namespace) -> Workload:
    """Drawn, or recorded; raises LabError for options of the one that are given for the other."""
    drawing = {name: getattr(options, name) for name in ("density", "units", "zipf")}
    if options.workload != "trace":
        if options.indices:
            raise LabError("--indices is for --workload trace")
        return workload_of(options.workload, **drawing, permuted=options.permuted)
    if given := [f"--{name}" for name, value in drawing.items() if value is not None]:
        raise LabError(f"a trace is recorded, not drawn: leave {' and '.join(given)} out")
    return trace_of(Path(options.indices or TRACE), options.ranks, options.permuted)


def rate_of(network: str, rate: str) -> str:
    """The rate, or "" for loopback: where it was asked for, or where nothing else is possible, which is then said."""
    if network == "loopback":
        return ""
    missing = why_not()
    if missing and network == "shaped":
        raise LabError(f"a shaped network takes {missing}")
    if missing:
        print(f"lab: a shaped network takes {missing}; running over loopback instead", file=sys.stderr)
    return "" if missing else rate


def run(settings: Settings, limit: float) -> Report:
    of = units_of(settings.workload, settings.ranks, settings.seed)
    by = bounds(of, bits_per_second(settings.rate) if settings.rate else None)
    return report(settings, by, launch(settings, limit))


if __name__ == "__main__":
    main()
