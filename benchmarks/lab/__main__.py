"""All-reduces compared on a slow network that this machine plays: hosts in network namespaces, links shaped by tbf.

    python -m benchmarks.lab --ranks 8 --rate 100mbit --schemes balanced holders --workload rows --density 0.02

That takes no root where users may make network namespaces; else it says why not, and runs over loopback, which says
nothing about networks. Bytes come first: they are exact and repeat. Times mean something only on a machine that does
nothing else. The method is in benchmarks/reports/benchmarks.md.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.lab.horovod import HOROVOD, why_not
from benchmarks.lab.launch import WORKER, Words, launch
from benchmarks.lab.options import add_turns, carry_out, new_parser, run_of
from benchmarks.lab.peers import TORCH
from benchmarks.lab.results import Report, bounds, report
from benchmarks.lab.settings import LabError, Settings, Workload
from benchmarks.lab.show import described, shown
from benchmarks.lab.workloads import KINDS, TRACE, trace_of, units_of, workload_of
from benchmarks.pages import save_json
from zenc.lab.cluster import bits_per_second

OTHERS = (*TORCH, HOROVOD)
SCHEMES = ("balanced", "holders", "sparcml", "agsparse")


def measured(options: argparse.Namespace) -> str:
    found = run(settings_of(options), options.limit)
    save_json(options.json, found.to_json())
    of = found.settings
    return shown(described(of), found.rows, of.reference, "", found.bounds)


def parser() -> argparse.ArgumentParser:
    made = new_parser("benchmarks.lab", __doc__)
    made.add_argument("--workload", choices=(*KINDS, "trace"), default="rows")
    made.add_argument("--indices", metavar="FILE", help="a recorded trace (the first step of the language model)")
    made.add_argument("--density", type=float, metavar="D", help="share of units that a rank holds (rows 0.02)")
    made.add_argument("--units", type=int, metavar="U", help="rows (200000) or elements (4000000)")
    made.add_argument("--zipf", type=float, metavar="S", help="exponent units are drawn by, 0 for evenly (rows 1.05)")
    made.add_argument("--permuted", action="store_true", help="units in a random order instead of by frequency")
    made.add_argument("--schemes", nargs="*", default=list(SCHEMES), metavar="SCHEME", help="names or .zen files")
    made.add_argument("--peers", nargs="*", choices=OTHERS, metavar="PEER", help=f"{' '.join(OTHERS)} (all there are)")
    add_turns(made, dense_rounds=3)
    return made


def settings_of(options: argparse.Namespace) -> Settings:
    """Return the settings in ``options``; raises LabError for impossible ones."""
    peers = tuple(dict.fromkeys([*options.schemes, *others(options.peers)]))
    run = run_of(options, peers)
    return Settings(workload=workload_in(options), **run)


def others(asked: Sequence[str] | None) -> Sequence[str]:
    """Return the peers that are not zenc's: those ``asked`` for, or by default all that are there.

    Raises LabError where Horovod is asked for and not there; by default a line on standard error says that it is not.
    """
    missing = why_not() if asked is None or HOROVOD in asked else ""
    if missing and asked is not None:
        raise LabError(f"{HOROVOD} takes {missing}")
    if missing:
        print(f"lab: {HOROVOD} takes {missing}. Going on without it", file=sys.stderr)
    return (OTHERS if not missing else TORCH) if asked is None else asked


def workload_in(options: argparse.Namespace) -> Workload:
    """Return the workload in ``options``, drawn or recorded; raises LabError for options of another kind."""
    drawing = {name: getattr(options, name) for name in ("density", "units", "zipf")}
    if options.indices and options.workload != "trace":
        raise LabError("--indices is for --workload trace")
    if options.workload in KINDS:
        return workload_of(options.workload, **drawing, permuted=options.permuted)
    if given := [f"--{name}" for name, value in drawing.items() if value is not None]:
        raise LabError(f"a trace is recorded, not drawn: leave {' and '.join(given)} out")
    return trace_of(Path(options.indices or TRACE), options.ranks, options.permuted)


def run(settings: Settings, limit: float, worker: Words = WORKER, shared_memory: bool = False) -> Report:
    of = units_of(settings.workload, settings.ranks, settings.seed)
    by = bounds(of, bits_per_second(settings.rate) if settings.rate else None)
    return report(settings, by, launch(settings, limit, worker, shared_memory))


if __name__ == "__main__":
    carry_out(lambda: measured(parser().parse_args()))
