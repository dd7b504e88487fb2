"""The tests for a GPU from the source tree: with the installed packages, or with a message about missing ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.run import MODULES, PACKAGES, ROOT

RUN = ROOT / "tests" / "gpu" / "run.py"


def ran(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["ZENC_TEST_GPU"] = "emulated"
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_from_any_folder_with_what_is_installed(tmp_path):
    done = ran(sys.executable, str(RUN), "tests/emulator/test_driver.py", "--collect-only", "-q", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "torch" in done.stdout.splitlines()[0] and "[real]" in done.stdout


@pytest.mark.skipif(PACKAGES.exists(), reason="make gpu-packages has filled its folder")
def test_what_is_missing_is_named(tmp_path):
    done = ran(sys.executable, "-S", str(RUN), folder=tmp_path)
    assert done.returncode == 2
    assert all(name in done.stderr for name in MODULES) and "make gpu-packages" in done.stderr
