"""The mutation check: breaks lines of every room, one at a time in a copy of the tree, and reports which tests notice.

    python -m tests.mutation.run --seed 1 --count 140 --json tests/golden/mutation.json      # make mutation

For each mutant of Python types are checked first, as ``make test`` does it. Then quick tests run, the nearest first,
until one fails or the time is up. What fails is run once more, and then in the copy as it was: a test that passes the
second time, or fails without the mutant, has noticed nothing, and the others go on without it. Mutants that change
nothing that can be observed are listed in ``equivalent.json``, each with the reason; they are reported, and not
counted.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.mutants import Mutant, chosen, edits, mutant_of
from tests.mutation.nearest import nearest
from zenc.codegen.build.cache import cache_dir

ROOT = Path(__file__).resolve().parents[2]
BUILT, CHECKED = Path(".pytest_cache/d"), Path(".mypy_cache")
"""Results of compiling by tests, by content, and of the check of types."""
ROOMS = ("zenc/**/*.py", "templates/shared/**/*.h", "templates/cpu/**/*.h", "templates/cuda/**/*.h")
EQUIVALENT = Path(__file__).with_name("equivalent.json")
RESULT = ROOT / "tests/golden/mutation.json"
LEAST = 0.9
"""The share of mutants that tests have to notice."""
TYPES = "mypy --strict"
"""The words in place of a test where the check of types notices a mutant."""
UNDECIDED = "undecided"
"""The word that stands in place of a test where time was up before all had run."""
REPORTED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
"""Exit statuses of pytest with a complete summary; with any other the process crashed, and a whole file failed."""
LONGEST = 150
"""The most seconds of one test: one that hangs has noticed the mutant, and is named by pytest."""


Key = tuple[str, str, str]
"""File, line before and line after: a mutant, wherever the line stands."""


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of a mutant.

    ``by``: the first test that failed, ``TYPES``, "" if none, or ``UNDECIDED``. ``why``: why none can notice it.
    """

    mutant: Mutant
    by: str
    seconds: float
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        mutant = self.mutant
        place = {"file": mutant.path, "line": mutant.line, "before": mutant.before, "after": mutant.after}
        told = {"equivalent": self.why} if self.why else {"noticed_by": self.by or None}
        return {**place, "change": mutant.what, **told, "seconds": round(self.seconds, 1)}


def files_of(root: Path) -> list[str]:
    """Return the files whose lines are broken, relative to ``root``: those of all rooms, native code among them."""
    return sorted({str(file.relative_to(root)) for pattern in ROOMS for file in root.glob(pattern)})


def equivalents() -> dict[Key, str]:
    """Return the mutants that no test can notice, each with the reason."""
    listed = json.loads(EQUIVALENT.read_text("utf-8"))
    return {(each["file"], each["before"], each["after"]): each["why"] for each in listed}


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _ended(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Return the exit status of ``process``, or None if it took longer than ``seconds``; kill all that it started."""
    status = None
    with contextlib.suppress(subprocess.TimeoutExpired):
        status = process.wait(seconds)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return status


class Copy:
    """A copy of the tree, with caches of its own that begin as those of this tree."""

    def __init__(self, folder: Path) -> None:
        self.root, self.cache = folder / "tree", folder / "cache"
        self.always: list[str] = []
        """Tests that fail whatever is broken: they notice nothing."""
        for name in filter(None, _output("git", "ls-files", "-z", "-co", "--exclude-standard").split("\0")):
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        for source, target in (
            (ROOT / BUILT, self.root / BUILT),
            (ROOT / CHECKED, self.root / CHECKED),
            (cache_dir(), self.cache),
        ):
            if source.is_dir():
                shutil.copytree(source, target)
        self.cache.mkdir(mode=0o700, exist_ok=True)
        self.environment = {**os.environ, "PYTHONPATH": str(self.root), "ZENC_CACHE_DIR": str(self.cache)}
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)  # every run starts in half the time
        if not self._has_right_types():
            raise SystemExit("the types of the tree are wrong before anything is broken: see make lint")

    def failing(self, tests: Sequence[str], seconds: float, *options: str) -> list[str]:
        """Return which of ``tests``, files or single ones, fail within ``seconds``, in the order in which they ran.

        Of a process that crashed it is a whole file.
        """
        command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-n0", f"--timeout={LONGEST}", "-m", "not slow",
                   "--hypothesis-profile=first"]  # fmt: skip
        if not tests:
            return []
        with (self.root / "told.txt").open("w+") as told:
            status = _ended(
                subprocess.Popen(
                    [*command, *options, *tests], cwd=self.root, env=self.environment, stdout=told, stderr=told,
                    stdin=subprocess.DEVNULL, start_new_session=True,
                ),
                seconds,
            )  # fmt: skip
            told.seek(0)
            failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", told.read(), re.MULTILINE)
        if failed or status is None or status in REPORTED:
            return failed
        if len(tests) == 1:
            return list(tests)
        return [file for file in tests if self.failing([file], seconds, *options)]

    def noticing(self, mutant: Mutant, limit: float, first: Sequence[str] = ()) -> str:
        """Return what notices ``mutant``; "" if nothing does, ``UNDECIDED`` if ``limit`` seconds are too few.

        ``first`` are tests to run before the nearest.
        """
        file, until = self.root / mutant.path, time.monotonic() + limit
        whole, tests = file.read_bytes(), [*([first] if first else []), *nearest(self.root, mutant.path)]
        while True:
            file.write_bytes(whole[: mutant.edit.start] + mutant.edit.text + whole[mutant.edit.end :])
            try:
                if mutant.path.endswith(".py") and not self._has_right_types():
                    return TYPES
                failed = self._first(tests, until)
                by_chance = failed not in ("", UNDECIDED) and failed not in self.failing([failed], LONGEST)
            finally:
                file.write_bytes(whole)
            if failed in ("", UNDECIDED) or not (by_chance or failed in self.failing([failed], LONGEST)):
                return failed
            self.always.append(failed)

    def _has_right_types(self) -> bool:
        command = [sys.executable, "-m", "mypy", "--strict"]
        told = subprocess.run(command, cwd=self.root, env=self.environment, capture_output=True, check=False)
        return told.returncode == 0

    def _first(self, tests: Sequence[Sequence[str]], until: float) -> str:
        """Return the first test that fails before ``until``, without those that always do; "" or ``UNDECIDED`` if none.

        Each of ``tests`` is a group of files that run in one process.
        """
        without = [option for test in self.always for option in ("--deselect", test)]
        for some in tests:
            left = until - time.monotonic()
            if left > 0 and (failed := self.failing(some, left, "-x", *without)):
                return failed[0]
        return "" if time.monotonic() < until else UNDECIDED


def check(
    copy: Copy, mutants: Sequence[Mutant], limit: float, earlier: Mapping[Key, str], first: Sequence[str] = ()
) -> Iterator[Found]:
    """Yield the outcome of each of ``mutants``; ``earlier``: the tests that are known to notice some."""
    known = equivalents()
    for mutant in mutants:
        started, key = time.monotonic(), (mutant.path, mutant.before, mutant.after)
        why = known.get(key, "")
        by = "" if why else earlier.get(key) or copy.noticing(mutant, limit, first)
        print(f"{mutant}\n    {mutant.before}\n    {mutant.after}\n    {why or by or 'NOT NOTICED'}", flush=True)
        yield Found(mutant, by, time.monotonic() - started, why)


def report(found: Sequence[Found], seed: int, count: int) -> dict[str, Any]:
    """Return as JSON data how many of the mutants ``found`` so far were noticed, and each of them."""
    counted = [each for each in found if not each.why and each.by != UNDECIDED]
    return {
        "command": f"python -m tests.mutation.run --seed {seed} --count {count}",
        "revision": _output("git", "rev-parse", "HEAD").strip(),
        "tried": len(found),
        "mutants": len(counted),
        "noticed": sum(bool(each.by) for each in counted),
        "equivalent": sum(bool(each.why) for each in found),
        "undecided": sum(each.by == UNDECIDED for each in found),
        "each": [each.to_json() for each in found],
    }


def noticed_in(path: Path | None) -> dict[Key, str]:
    """Return for each mutant the test that noticed it, as an earlier run has written it to ``path``."""
    each = json.loads(path.read_text("utf-8"))["each"] if path and path.exists() else []
    return {
        (e["file"], e["before"], e["after"]): e["noticed_by"]
        for e in each
        if e.get("noticed_by") not in (None, UNDECIDED)
    }


def tried_in(path: Path) -> list[Mutant]:
    """Return the mutants that an earlier run has written to ``path``, of those whose lines the tree still has."""
    mutants = list[Mutant]()
    for each in json.loads(path.read_text("utf-8"))["each"]:
        file, key = ROOT / each["file"], (each["before"], each["after"])
        source = file.read_bytes() if file.is_file() else b""
        same = (mutant_of(each["file"], source, edit) for edit in edits(each["file"], source))
        like = [mutant for mutant in same if (mutant.before, mutant.after) == key]
        mutants += sorted(like, key=lambda mutant: abs(mutant.line - each["line"]))[:1]
    return mutants


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=140)
    parser.add_argument("--limit", type=float, default=240, help="seconds of tests for each mutant")
    parser.add_argument("--only", default="", help="those whose file has this in its path")
    parser.add_argument("--first", nargs="+", default=[], metavar="TEST", help="tests to run before the nearest")
    parser.add_argument("--json", type=Path, help="where to write the result, after each mutant")
    parser.add_argument("--resume", action="store_true", help="keep what that file says is noticed, and try its others")
    given = parser.parse_args()
    drawn = tried_in(given.json) if given.resume and given.json and given.json.exists() else []
    mutants = drawn or chosen(ROOT, files_of(ROOT), given.seed, given.count)
    mutants = [mutant for mutant in mutants if given.only in mutant.path]
    found, told = list[Found](), report([], given.seed, given.count)
    with tempfile.TemporaryDirectory(prefix="zenc-mutation-") as folder:
        earlier = noticed_in(given.json) if given.resume else {}
        for each in check(Copy(Path(folder)), mutants, given.limit, earlier, given.first):
            found.append(each)
            told = report(found, given.seed, given.count)
            if given.json:
                given.json.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    print(
        f"{told['noticed']} of {told['mutants']} noticed; {told['equivalent']} can't be, {told['undecided']} undecided"
    )
    return 0 if told["noticed"] >= LEAST * told["mutants"] else 1


if __name__ == "__main__":
    sys.exit(main())
