"""Processes that are forked from a server which has imported torch and zenc: they start in milliseconds.

    process = context().Process(target=job, args=(...))         # as of multiprocessing
    done = run_zenc(["check", "balanced"], folder, environment)  # as of subprocess.run
    done = run_ranks(2, ["train.py"], folder, environment)       # as torchrun starts them

Each process of pytest has a server, which has no threads and has initialised nothing.
"""

import io
import os
import pkgutil
import runpy
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = (
    "torch.distributed", "torch._dynamo", "rich.console", "rich.table", "rich.progress", "networkx", "jinja2",
    "lark", "numpy", "typer._adapters", "pytest", "hypothesis.strategies",
)  # fmt: skip
"""Modules imported late by zenc, torch, DDP and tests; not ``typer.rich_utils``, which reads the environment."""
SECONDS = 120.0
Done = subprocess.CompletedProcess[str]


@cache
def context() -> ForkServerContext:
    """Return a ``multiprocessing`` context whose processes are forks of the server."""
    made = get_context("forkserver")
    made.set_forkserver_preload([*LIBRARIES, *_modules_of_zenc(), "tests.support.ranks"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), before]))
    try:
        forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
    return made


def _modules_of_zenc() -> list[str]:
    found = pkgutil.walk_packages([str(ROOT / "zenc")], "zenc.", onerror=lambda _: None)
    return [module.name for module in found if not module.name.endswith("__main__")]


def run_zenc(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float = SECONDS) -> Done:
    """Run ``zenc ARGUMENTS`` in a fork, with nothing on its standard input. Raise subprocess.TimeoutExpired."""
    return _run(["zenc", *arguments], folder, [dict(environment)], seconds)


def run_ranks(
    size: int, command: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float = SECONDS
) -> Done:
    """Run ``torchrun --nproc-per-node SIZE SCRIPT ARGUMENTS`` in forks, without its agent. Raise TimeoutExpired."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    group = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [{**environment, **_texts(group), **_texts({"RANK": k, "LOCAL_RANK": k})} for k in range(size)]
    return _run(command, folder, ranks, seconds)


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


def _run(command: Sequence[str], folder: Path, environments: Sequence[Mapping[str, str]], seconds: float) -> Done:
    """Run ``command`` once for each environment, at once; return all output, and the first status that is not 0."""
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        shown = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in (out, error)]
        started = [
            context().Process(target=_program, args=(list(command), folder, variables, *shown))
            for variables in environments
        ]
        for process in started:
            process.start()
        for process in started:
            process.join(max(0.0, deadline - time.monotonic()))
        if any(process.exitcode is None for process in started):
            for process in started:
                process.kill()
            raise subprocess.TimeoutExpired(list(command), seconds)
        status = next((process.exitcode for process in started if process.exitcode), 0)
        return Done(list(command), status, _text(out), _text(error))


def _program(command: list[str], folder: Path, environment: dict[str, str], out: str, error: str) -> None:
    """Run ``zenc``, or the script that ``command`` names."""
    os.chdir(folder)
    sys.path.insert(0, "")  # as of a program that is given with -c
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate((os.devnull, out, error)):
        opened = os.open(path, os.O_RDWR | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode, closefd=False) for number, mode in enumerate("rww"))
    sys.argv = command
    if command[0] == "zenc":
        from zenc.cli import main

        main()
    else:
        runpy.run_path(command[0], run_name="__main__")


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return io.TextIOWrapper(file).read()
