"""The measurement of one point by the lab, in a process of its own, and the part of its report that is kept."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.lab.settings import ROOT, LabError
from benchmarks.lab.suite.points import Point
from benchmarks.lab.suite.results import Result, result_of

RESULTS = ("docs/benchmarks", "benchmarks/reports/benchmarks.md")
"""Files that the suite itself writes, from the root of the repository."""


def measured(point: Point, more: Sequence[str] = ()) -> Result:
    """Run ``point``, with ``more`` words after its own. Raises LabError where it fails; it has said why itself."""
    point = replace(point, words=(*point.words, *more))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        command = [sys.executable, "-m", point.module, *point.words, "--json", str(file)]
        started, before, own = time.monotonic(), busy_seconds(), children_seconds()
        code = subprocess.run(command, cwd=ROOT).returncode
        seconds = time.monotonic() - started
        if code:
            raise LabError(f"{point.name} ended with {code}")
        others = (busy_seconds() - before) - (children_seconds() - own)
        report = json.loads(file.read_text())
    share = max(0.0, others) / seconds / (os.cpu_count() or 1)
    return result_of(point, report, about(), seconds, share)


def busy_seconds() -> float:
    """Return the seconds of all cores since the machine started: in any programs, and taken by a hypervisor.

    The kernel's own time is left out: what the packets of the network take belongs to no process.
    """
    user, nice, *_, steal = (int(word) for word in Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + steal) / os.sysconf("SC_CLK_TCK")


def children_seconds() -> float:
    """Return the seconds in the programs that this process has started, and waited for."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


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
