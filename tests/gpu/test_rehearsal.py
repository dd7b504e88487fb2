"""Tests for a GPU on a machine without one: they skip with a reason, and pass on a GPU of the emulator."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import why_no_gpu
from tests.gpu.run import MODULES, PACKAGES, ROOT


def run(*arguments: str, **variables: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", *arguments]
    environment = {key: value for key, value in os.environ.items() if key != "ZENC_TEST_GPU"}
    ran = subprocess.run(
        command, cwd=ROOT, env={**environment, **variables}, capture_output=True, text=True, timeout=1700
    )
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-6000:]
    return ran.stdout


@pytest.mark.slow
def test_they_are_skipped_without_one():
    missing = why_no_gpu()
    if not missing:
        pytest.skip("there is a GPU")
    printed = run("tests/gpu/test_ddp.py", "tests/targets/cuda/test_scan.py")
    assert "there is no GPU: " in printed and "passed" not in printed and "skipped" in printed


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_they_run_on_an_emulated_one():
    printed = run("tests/gpu", "tests/targets/cuda", ZENC_TEST_GPU="emulated")
    assert int(printed.split(" passed")[0].split()[-1]) > 400


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
