"""The real program, in a process of its own, as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Zenc = Callable[..., subprocess.CompletedProcess[str]]
PROGRAM = "from zenc.cli import main; main()"
CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture
def zenc(tmp_path: Path) -> Zenc:
    """Runs ``zenc ARGUMENTS`` in an empty folder, with a cache of its own."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        paths = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
        added = {"ZENC_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": paths, "COLUMNS": "100", **environment}
        command = [sys.executable, "-c", PROGRAM, *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, **added}, timeout=120
        )

    return run


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], str]:
    """Writes a file into the folder that ``zenc`` runs in, and returns its name."""

    def save(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return name

    return save
