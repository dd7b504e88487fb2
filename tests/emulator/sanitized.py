"""Tests of kernels again, with kernels that a sanitizer watches.

    assert_clean("thread", "tests/targets/cuda/test_merge.py")

A Python of its own loads the sanitizer before anything else, and runs pytest; ``EMULATOR_MODE`` tells ``Device`` to
compile for it.
"""

import os
import subprocess
import sys
from pathlib import Path

from zenc.codegen.build.toolchain import toolchain

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = {"address": "libasan.so", "thread": "libtsan.so"}
OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "halt_on_error=1:exitcode=66", "OMP_NUM_THREADS": "1"}
"""Python leaves memory to the system, and race detectors do not see what orders the threads of OpenMP."""


def assert_clean(mode: str, *tests: str, **variables: str) -> None:
    """Run pytest on ``tests`` under a sanitizer: ``address`` (with undefined behaviour) or ``thread``.

    ``variables`` are added to the environment.
    """
    environment = {**os.environ, **OPTIONS, **variables, "EMULATOR_MODE": mode, "LD_PRELOAD": sanitizer(mode)}
    command = [sys.executable, "-m", "pytest", "-q", "-s", *tests]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=7200)
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-6000:]


def sanitizer(mode: str) -> str:
    """Return the path of the sanitizer's library, which the compiler knows."""
    command = [*toolchain().command, f"-print-file-name={LIBRARIES[mode]}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
