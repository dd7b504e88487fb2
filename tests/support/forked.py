"""Processes that are forked from a server which has imported torch and zenc: they start in milliseconds.

    process = context().Process(target=job, args=(...))         # as of multiprocessing
    done = run_zenc(["check", "balanced"], folder, environment)  # as of subprocess.run

The server is one for each process of pytest. It has no threads and has initialised nothing.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
IMPORTED = ["torch", "torch.distributed", "zenc.cli", "zenc.torch", "tests.support.ranks"]
SECONDS = 120.0


@cache
def context() -> ForkServerContext:
    """The context of ``multiprocessing`` whose processes are such forks."""
    made = get_context("forkserver")
    made.set_forkserver_preload(IMPORTED)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), before]))
    try:
        forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
    return made


def run_zenc(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float = SECONDS
) -> subprocess.CompletedProcess[str]:
    """``zenc ARGUMENTS`` in a fork, with nothing on its standard input. Raises subprocess.TimeoutExpired."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        shown = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in (out, error)]
        process = context().Process(target=_zenc, args=(list(arguments), folder, dict(environment), *shown))
        process.start()
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(["zenc", *arguments], seconds)
        return subprocess.CompletedProcess(["zenc", *arguments], process.exitcode, _text(out), _text(error))


def _zenc(arguments: list[str], folder: Path, environment: dict[str, str], out: str, error: str) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate((os.devnull, out, error)):
        opened = os.open(path, os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode, closefd=False) for number, mode in enumerate("rww"))
    sys.argv = ["zenc", *arguments]
    from zenc.cli import main

    main()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return io.TextIOWrapper(file).read()
