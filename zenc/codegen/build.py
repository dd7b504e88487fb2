"""From rendered sources to a shared library: look it up, or compile it once for all processes of the node.

    build(sources) = lookup(key) or (lock, lookup(key) or (compile, publish))

The second look under the lock finds what another process has compiled meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from zenc._version import __version__
from zenc.codegen import cache
from zenc.codegen.lock import acquire, open_lock
from zenc.codegen.templates import headers, include_dirs
from zenc.codegen.toolchain import ABI_VERSION, NATIVE, Toolchain, toolchain
from zenc.errors import BuildError, Diagnostic
from zenc.log import notice

DEADLINE_SECONDS = 300.0
SHOWN_LINES = 12


def build(sources: Mapping[str, str], *, target: str = "cpu", deadline_s: float = DEADLINE_SECONDS) -> Path:
    """The shared library of ``sources`` (file name -> C++ text), from the cache if it was compiled before.

    Of several processes one compiles and the others wait, ``deadline_s`` seconds at most for both together.
    Raises BuildError (``compiler-missing``, ``compile-failed``, ``build-timeout``) and CacheError.
    """
    deadline = time.monotonic() + deadline_s
    tools = toolchain()
    key = cache_key(sources, tools, target)
    directory = cache.open_cache()
    found = cache.lookup(directory, key)
    if found is not None:
        return found
    with cache.writing(directory):
        lock = open_lock(directory / f"{key}{cache.LOCK_SUFFIX}")
    with lock:
        if not acquire(lock, deadline):
            raise _timeout(f"another process has been compiling the same kernels for {deadline_s:.0f} s")
        return cache.lookup(directory, key) or _compile(directory, key, sources, tools, target, deadline)


def cache_key(sources: Mapping[str, str], tools: Toolchain, target: str) -> str:
    """The sha256, in hexadecimal, of everything that decides about the compiled bytes."""
    everything = {
        "sources": dict(sources),
        "headers": headers(target),
        "flags": tools.flags,
        "command": tools.command,
        "compiler": tools.version,
        "macros": tools.macros,
        "zenc": __version__,
        "abi": ABI_VERSION,
        "target": target,
    }
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()


def _compile(
    directory: Path, key: str, sources: Mapping[str, str], tools: Toolchain, target: str, deadline: float
) -> Path:
    if NATIVE not in tools.flags:
        notice(f"{tools.name} does not know {NATIVE}: the kernels will not use all of this processor")
    notice(f"compiling kernels {key[:12]} with {tools.name}: once, then they are in {directory}")
    start = time.monotonic()

    def fill(folder: Path) -> dict[str, str]:
        with cache.writing(directory):
            for name, text in sources.items():
                (folder / name).write_text(text, "utf-8")
        command = _command(tools, target, sorted(sources))
        status, output = _run(command, folder, deadline)
        if status != 0:
            raise _failure(directory, key, folder, output, command)
        return {"zenc": __version__, "compiler": tools.name, "command": " ".join(command)}

    library = cache.publish(directory, key, fill)
    notice(f"compiled kernels {key[:12]} in {time.monotonic() - start:.1f} s")
    return library


def _command(tools: Toolchain, target: str, names: list[str]) -> list[str]:
    includes = [f"-I{folder}" for folder in include_dirs(target)]
    return [*tools.command, *tools.flags, *includes, *names, "-o", cache.LIBRARY]


def _run(command: list[str], folder: Path, deadline: float) -> tuple[int, str]:
    """The exit status and all output of the compiler."""
    seconds = max(deadline - time.monotonic(), 0.0)
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise _timeout(f"the compiler was stopped after {seconds:.0f} s") from None
    except OSError as problem:
        return 127, str(problem)
    return done.returncode, done.stdout.decode("utf-8", "replace")


def _failure(directory: Path, key: str, folder: Path, output: str, command: list[str]) -> Exception:
    """What to raise for a failed compile; its sources are kept under a name that says so."""
    if "No space left on device" in output or "Disk quota exceeded" in output:
        return cache.not_writable(directory, "no space left on device")
    kept = directory / f"{cache.FAILED}{key}"
    with cache.writing(directory):
        (folder / "compiler-output.txt").write_text(" ".join(command) + "\n" + output, "utf-8")
        cache.replace(folder, kept)
    lines = _from_first_error([line for line in output.splitlines() if line.strip()])
    more = [f"... and {len(lines) - SHOWN_LINES} lines more"] if len(lines) > SHOWN_LINES else []
    return BuildError(
        Diagnostic(
            "compile-failed",
            f"{command[0]} could not compile the generated kernels",
            notes=(*lines[:SHOWN_LINES], *more, f"sources and the whole output are kept in {kept}"),
            help="set CXX to another C++17 compiler; if it fails too, this is a bug in zenc",
        )
    )


def _from_first_error(lines: list[str]) -> list[str]:
    """The compiler's lines without the warnings that come before its first error."""
    errors = (number for number, line in enumerate(lines) if "error:" in line)
    return lines[next(errors, 0) :]


def _timeout(why: str) -> BuildError:
    return BuildError(Diagnostic("build-timeout", why, help="try again; raise the deadline for a slow machine"))
