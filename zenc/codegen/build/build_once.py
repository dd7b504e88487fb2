"""Compile a unit once for all processes of the node: look it up, or lock, look again, compile and publish.

    made(unit) = lookup(key) or (lock, lookup(key) or (make, publish))

The second look under the lock finds what another process has compiled meanwhile.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from zenc.codegen.build import cache
from zenc.codegen.build.toolchain import ensure_room
from zenc.common.log import notice
from zenc.common.wording import count
from zenc.errors import BuildError, Diagnostic

POLL_SECONDS = 0.05


def open_lock(path: Path) -> BinaryIO:
    """Open the lock file ``path``, not yet held; closing it releases the lock. Raises OSError.

    The file stays behind: removing it while others wait would give two of them a lock of their own.
    """
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "r+b", buffering=0)


def acquire(lock: BinaryIO, deadline: float) -> bool:
    """Hold ``lock``, waiting for others until ``deadline`` (of time.monotonic); return whether it is held."""
    while True:
        try:
            fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_SECONDS)
        except OSError:  # a file system without locks: several may compile, and each publishes by one rename
            return True


DEADLINE_SECONDS = 300.0
OUTPUT = "compiler-output.txt"
SHOWN_LINES = 12


@dataclass(frozen=True, slots=True)
class BuildUnit:
    """A unit to compile; ``key`` is the sha256 of all that decides about the bytes of the file ``product``.

    ``make(folder, deadline)`` writes the product and its other files into an empty folder, until a deadline of
    ``time.monotonic``, and returns notes for the manifest. It raises CompileFailure, or BuildError.
    """

    key: str
    product: str
    compiler: str
    make: Callable[[Path, float], dict[str, str]]
    kind: str = "kernels"
    scheme: str = ""
    """The scheme that the unit is made for, which ``zenc cache list`` shows."""
    help: str = "this is a bug in zenc: please report it with that output"


class CompileFailure(Exception):
    """An error of a compiler that refused the code: its ``command`` as one would type it, and all its output."""

    def __init__(self, command: str, output: str) -> None:
        super().__init__(command, output)
        self.command, self.output = command, output


def get_or_build(unit: BuildUnit, deadline_s: float = DEADLINE_SECONDS) -> Path:
    """Return the product of ``unit``, from the cache if it was compiled before.

    Of several processes one compiles and the others wait, ``deadline_s`` seconds at most for both together.
    Raises BuildError (``compile-failed``, ``build-timeout``, or ``make``'s) and CacheError.
    """
    directory = cache.open_cache()
    product = _made(directory, unit, deadline_s)
    cache.note_use(directory, unit.key, unit.scheme)
    return product


def _made(directory: Path, unit: BuildUnit, deadline_s: float) -> Path:
    deadline = time.monotonic() + deadline_s
    found = cache.lookup(directory, unit.key, unit.product)
    if found is not None:
        return found
    with cache.writing(directory):
        lock = open_lock(directory / f"{unit.key}{cache.LOCK_SUFFIX}")
    with lock:
        if not acquire(lock, deadline):
            raise timeout(f"another process has been compiling the same {unit.kind} for {deadline_s:.0f} s")
        return cache.lookup(directory, unit.key, unit.product) or _make(directory, unit, deadline)


def _make(directory: Path, unit: BuildUnit, deadline: float) -> Path:
    name = f"{unit.kind} {unit.key[:12]}"
    notice(f"compiling {name} with {unit.compiler}: once, then they are in {directory}")
    start = time.monotonic()

    def fill(folder: Path) -> dict[str, str]:
        try:
            return unit.make(folder, deadline)
        except CompileFailure as failure:
            raise _failed(directory, unit, folder, failure) from None
        except OSError as problem:
            raise cache.not_writable(directory, problem.strerror or str(problem)) from problem

    product = cache.publish(directory, unit.key, unit.product, fill)
    notice(f"compiled {name} in {time.monotonic() - start:.1f} s")
    return product


def run(command: Sequence[str], folder: Path, deadline: float) -> str:
    """Run ``command`` in ``folder`` and return its output; raises CompileFailure, and BuildError ``build-timeout``."""
    seconds = max(deadline - time.monotonic(), 0.0)
    try:
        status, output = _run_to_end(command, folder, seconds)
    except subprocess.TimeoutExpired:
        raise timeout(f"the compiler was stopped after {seconds:.0f} s") from None
    except OSError as problem:
        ensure_room(command[0], problem)
        raise CompileFailure(" ".join(command), str(problem)) from None
    if status != 0:
        raise CompileFailure(" ".join(command), output)
    return output


def _run_to_end(command: Sequence[str], folder: Path, seconds: float) -> tuple[int, str]:
    """Return the exit status and output of ``command``; all that it started ends with it, also when it is stopped."""
    with subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # a driver leaves its compiler running when it is killed alone
            raise
    return process.returncode, output.decode("utf-8", "replace")


def _failed(directory: Path, unit: BuildUnit, folder: Path, failure: CompileFailure) -> Exception:
    """Return the exception for a failed compile; its sources are kept under a name that says so."""
    cache.ensure_space(directory, failure.output)
    kept = directory / f"{cache.FAILED}{unit.key}"
    with cache.writing(directory):
        (folder / OUTPUT).write_text(f"{failure.command}\n{failure.output}", "utf-8")
        cache.replace(folder, kept)
    lines = _from_first_error([line for line in failure.output.splitlines() if line.strip()])
    more = [f"... and {count(len(lines) - SHOWN_LINES, 'more line')}"] if len(lines) > SHOWN_LINES else []
    return BuildError(
        Diagnostic(
            "compile-failed",
            f"{unit.compiler} could not compile the generated {unit.kind}",
            notes=(*lines[:SHOWN_LINES], *more, f"sources and the whole output are kept in {kept}"),
            help=unit.help,
        )
    )


def _from_first_error(lines: list[str]) -> list[str]:
    errors = (number for number, line in enumerate(lines) if "error:" in line or ": error" in line)
    return lines[next(errors, 0) :]


def timeout(why: str) -> BuildError:
    """Return the error of a compile, or of a wait for one, that took too long."""
    return BuildError(Diagnostic("build-timeout", why, help="try again; raise the deadline for a slow machine"))
