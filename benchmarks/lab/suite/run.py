"""A suite at work: its points measured one after the other, its results kept, its page made of them."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lab.settings import LabError
from benchmarks.lab.suite.measure import measured
from benchmarks.lab.suite.points import Point
from benchmarks.lab.suite.results import Results, load, save
from zenc.lab.cluster import why_not

BUSY = 0.02
"""Share of the cores that other processes may use while times are taken."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite that a user runs as ``module``; ``write`` makes the page of the results in ``folder``."""

    module: str
    help: str | None
    points: Sequence[Point]
    folder: Path
    write: Callable[[], None]


def carry_out(suite: Suite) -> None:
    """Do what the command line says."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # by way of all that cleans up
    options = parser(suite).parse_args()
    points = [point for point in suite.points if not options.only or point.name in options.only]
    if options.list:
        print(listed(points, load(suite.folder, suite.points)))
        return
    if options.lab and not options.to:
        raise SystemExit("suite: --lab measures something else than the page says; give it a folder with --to")
    if not options.page and not options.lab and (missing := why_not()):
        raise SystemExit(f"suite: a shaped network takes {missing}")
    failed = [] if options.page else measure(points, options.to or suite.folder, shlex.split(options.lab))
    if not options.to:
        suite.write()
    if failed:
        raise SystemExit(f"suite: not measured: {', '.join(failed)}")


def parser(suite: Suite) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=f"python -m {suite.module}", description=suite.help, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [point.name for point in suite.points]
    made.add_argument("--only", nargs="+", choices=names, default=[], metavar="NAME", help=" ".join(names))
    made.add_argument("--list", action="store_true", help="the points, and about how long they take")
    made.add_argument("--page", action="store_true", help="only write the page, from the results that there are")
    made.add_argument("--to", type=Path, metavar="FOLDER", help="where results go; the page stays as it is then")
    made.add_argument(
        "--lab", default="", metavar="WORDS", help="more options for each point, to try it out; with --to"
    )
    return made


def listed(points: Sequence[Point], results: Results) -> str:
    """Return a line a point.

    The time is that of the last run, where there was one.
    """
    seconds = {point.name: results[point.name].seconds if point.name in results else point.seconds for point in points}
    width = max(len(name) for name in seconds)
    lines = [f"{point.name:{width}} {seconds[point.name]:5.0f} s  {point.shows}" for point in points]
    return "\n".join([*lines, f"{'':{width}} {sum(seconds.values()):5.0f} s"])


def measure(points: Sequence[Point], folder: Path, more: Sequence[str]) -> list[str]:
    """Save the result of each point; returns the names of those that failed."""
    failed = []
    for number, point in enumerate(points, 1):
        left = sum(each.seconds for each in points[number - 1 :])
        say(f"{number} of {len(points)}, {point.name}: {point.shows}; about {left} s left")
        if not point.possible():
            say(f"{point.name} is left out, since {point.package} is not installed")
            continue
        try:
            result = measured(point, more)
        except LabError as error:
            say(str(error))
            failed.append(point.name)
            continue
        save(folder, result)
        if result.others > BUSY:
            say(f"others used {result.others:.0%} of the cores during {point.name}: measure again on an idle machine")
    return failed


def say(words: str) -> None:
    print(f"suite: {words}", file=sys.stderr)
