"""A suite at work: its points measured one after the other by the lab, its results kept, its page made of them."""

import argparse
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.lab.launch import Others
from benchmarks.lab.settings import LabError
from benchmarks.lab.suite.points import Point
from benchmarks.lab.suite.results import Result, Results, load, result_of, save
from benchmarks.pages import ROOT, json_of, new_parser
from zenc.lab.cluster import why_not

BUSY = 0.02
"""Share of the cores that other processes may use while times are taken."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite that a user runs as ``module``; ``made`` makes of a page, and the results in ``folder``, the new page."""

    module: str
    help: str | None
    points: Sequence[Point]
    folder: Path
    page: Path
    made: Callable[[str, Results], str]

    def rewritten(self) -> str:
        return self.made(self.page.read_text(encoding="utf-8"), load(self.folder, self.points))


def carry_out(suite: Suite) -> None:
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
        suite.page.write_text(suite.rewritten(), encoding="utf-8")
    if failed:
        raise SystemExit(f"suite: not measured: {', '.join(failed)}")


def parser(suite: Suite) -> argparse.ArgumentParser:
    made = new_parser(suite.help, suite.module)
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


RESULTS = ("docs/benchmarks", "benchmarks/reports/benchmarks.md")
"""Files that the suite itself writes, from the root of the repository."""


def measured(point: Point, more: Sequence[str] = ()) -> Result:
    """Run ``point``, with ``more`` words after its own. Raises LabError where it fails; it has said why itself."""
    point = replace(point, words=(*point.words, *more))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        command = [sys.executable, "-m", point.module, *point.words, "--json", str(file)]
        started, others = time.monotonic(), Others()
        code = subprocess.run(command, cwd=ROOT).returncode
        seconds = time.monotonic() - started
        if code:
            raise LabError(f"{point.name} ended with {code}")
        return result_of(point, json_of(file), about(), seconds, others.share())


def about() -> dict[str, Any]:
    """Return facts of the machine and of the measured versions, beside those that the ranks tell themselves."""
    from zenc import __version__

    return {"processor": processor(), "compiler": compiler(), "zenc": __version__, "commit": commit()}


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, model = line.partition(":")
        if name.strip() == "model name":
            return model.strip()
    return "unknown"


def compiler() -> str:
    """Return the version of g++ alone."""
    return f"g++ {output('g++', '-dumpfullversion') or 'unknown'}"


def commit() -> str:
    """Return the commit of the checkout.

    With a plus where files differ from it, but for those that the suite writes.
    """
    git = ("git", "-c", f"safe.directory={ROOT}")  # root may look into the checkout of a user
    found = output(*git, "rev-parse", "--short=10", "HEAD")
    apart = [f":(exclude){path}" for path in RESULTS]
    changed = output(*git, "status", "--porcelain", "--untracked-files=no", "--", ".", *apart)
    return f"{found}+" if found and changed else found or "unknown"


def output(program: str, *words: str) -> str:
    """Return the output of ``program``; "" where it fails or is not there."""
    if not shutil.which(program):
        return ""
    done = subprocess.run([program, *words], cwd=ROOT, capture_output=True, text=True)
    return "" if done.returncode else done.stdout.strip()
