"""Kernels on a GPU under compute-sanitizer: a small selection of their tests again, for each of its tools."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.machine import is_emulated

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
FOLDERS = ("", "/usr/local/cuda/bin", "/opt/cuda/bin")
"""Folders in which the tool is looked for, after ``CUDA_HOME``; "" is the PATH."""
FAILED = 86
SELECTION = (
    "tests/targets/cuda/test_scan.py",
    "tests/targets/cuda/test_place.py::test_one_block_groups_few_inputs_as_many_kernels_do",
    "tests/targets/cuda/test_codec.py::test_what_is_written_is_read_back",
    "tests/targets/cuda/test_expand.py",
    "tests/targets/cuda/test_holders.py::test_more_ranks_than_lanes",
    "tests/targets/cuda/test_merge.py::test_one_alone_keeps_its_bits",
    "tests/targets/cuda/test_merge.py::test_zero_rows_are_left_out_as_on_the_cpu",
    "tests/targets/cuda/test_place.py::test_units_that_come_several_times",
    "tests/targets/cuda/test_place.py::test_rows_that_lie_at_odd_addresses",
)


def find_tool() -> str | None:
    homes = [f"{os.environ[name]}/bin" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    found = (shutil.which("compute-sanitizer", path=folder or None) for folder in (*homes, *FOLDERS))
    return next((path for path in found if path), None)


def run(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1700)


def pytest_of(*options: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "--timeout=0", *options, *SELECTION]


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("tool", TOOLS)
def test_nothing_is_found(tool):
    if is_emulated():
        pytest.skip("compute-sanitizer watches no emulated GPU: ZENC_TEST_GPU is set")
    program = find_tool()
    if program is None:
        pytest.skip("compute-sanitizer is neither on the PATH nor in /usr/local/cuda/bin")
    ran = run([program, "--tool", tool, "--error-exitcode", str(FAILED), *pytest_of("-x")])
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-6000:]


@pytest.mark.slow
def test_the_selection_is_there():
    ran = run(pytest_of("--collect-only"), ZENC_TEST_GPU="emulated")
    assert ran.returncode == 0, ran.stdout
    for entry in SELECTION:
        assert f"{entry}[gpu" in ran.stdout or f"{entry}::" in ran.stdout, entry


def test_the_tool_of_cuda_home_comes_first(monkeypatch, tmp_path):
    tool = tmp_path / "bin" / "compute-sanitizer"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert find_tool() == str(tool)
