"""The program as a user runs it, in a process of its own: a fork that spares the imports, or the real one."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.forked import ROOT as CHECKOUT
from tests.support.forked import SECONDS, run_zenc

Zenc = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[[str, str], str]
PROGRAM = "from zenc.cli import main; main()"


@pytest.fixture
def zenc(tmp_path: Path) -> Zenc:
    """Run ``zenc ARGUMENTS`` in an empty folder, with an own cache, in a fork of a process that imported it."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return run_zenc(arguments, tmp_path, _environment(tmp_path, environment))

    return run


@pytest.fixture
def new_zenc(tmp_path: Path) -> Zenc:
    """Run ``zenc ARGUMENTS`` by a new interpreter, for what depends on its start."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", PROGRAM, *arguments]
        variables = _environment(tmp_path, environment)
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=variables, timeout=SECONDS)

    return run


def _environment(folder: Path, further: dict[str, str]) -> dict[str, str]:
    paths = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    added = {"ZENC_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": paths, "COLUMNS": "100"}
    return {**os.environ, **added, **further}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file into the folder that ``zenc`` runs in, and return its name."""

    def save(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return name

    return save
