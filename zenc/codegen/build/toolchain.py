"""The C++ toolchain: its command, its version, and the flags that ``-march=native`` stands for on this machine."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from zenc.errors import BuildError, Diagnostic

NATIVE = "-march=native"

# -O2 with vectors: as fast as -O3, in 60 % of the time to compile (GCC's -O2 alone hardly vectorises).
# -ffp-contract=off: a fused multiply-add rounds otherwise than the sum it replaces, on some processors only.
FLAGS = (
    "-O2",
    "-ftree-vectorize",
    "-fvect-cost-model=dynamic",
    "-std=c++17",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-exceptions",
    "-fno-rtti",
    "-shared",
    "-fPIC",
    "-Wall",
    "-Wextra",
    "-Werror=return-type",
    "-Werror=uninitialized",
)

PROBE_SECONDS = 60.0

_INSTALL = {
    "linux": "install g++ ('apt install g++', 'dnf install gcc-c++' or what your distribution has)",
    "darwin": "install Apple's compiler: 'xcode-select --install'",
}


def install_help(platform: str = sys.platform) -> str:
    """Return instructions to install a compiler on ``platform``, as ``sys.platform`` calls it."""
    return f"{_INSTALL.get(platform, 'install a C++17 compiler')}, or set CXX to a C++17 compiler"


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A compiler that answers; ``macros`` is the text of its predefined macros: the resolved architecture."""

    command: tuple[str, ...]
    flags: tuple[str, ...]
    version: str
    macros: str

    @property
    def name(self) -> str:
        """The first line of ``--version``, or the command."""
        return self.version.partition("\n")[0] or self.command[0]


def toolchain() -> Toolchain:
    """Return the compiler named by ``$CXX``, or g++; asked once a process for each value of ``$CXX``.

    Raises BuildError ``compiler-missing``.
    """
    return _probe(os.environ.get("CXX", "").strip() or "g++", os.environ.get("PATH", ""))


@cache
def _probe(text: str, _path: str) -> Toolchain:
    try:
        command = tuple(shlex.split(text))
    except ValueError as problem:
        raise _missing(text, f"$CXX can't be split into words: {problem}") from None
    if not command or shutil.which(command[0]) is None:
        raise _missing(text, f"there is no program {command[0] if command else text!r} on the PATH")
    version = _ask(text, (*command, "--version"))
    if version is None:
        raise _missing(text, "it does not answer to --version")
    ask_macros = ("-dM", "-E", "-x", "c++", os.devnull)
    native = _ask(text, (*command, NATIVE, *ask_macros))
    if native is not None:
        return Toolchain(command, (NATIVE, *FLAGS), version, native)
    return Toolchain(command, FLAGS, version, _ask(text, (*command, *ask_macros)) or "")


def _ask(text: str, command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, timeout=PROBE_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as problem:
        ensure_room(text, problem)
        raise _missing(text, str(problem)) from problem
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def ensure_room(program: str, problem: Exception) -> None:
    """Raise BuildError ``too-few-files`` if a ``program`` was not started for want of files, processes or memory."""
    if isinstance(problem, OSError) and problem.errno in (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM):
        message = f"{program!r} can't be started: {problem.strerror}"
        help = "raise the limits of open files (ulimit -n), processes (ulimit -u) or memory (ulimit -v)"
        raise BuildError(Diagnostic("too-few-files", message, help=help)) from problem


def _missing(text: str, why: str) -> BuildError:
    return BuildError(
        Diagnostic("compiler-missing", f"the C++ compiler {text!r} can't be used", notes=(why,), help=install_help())
    )
