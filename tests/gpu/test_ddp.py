"""DDP with zenc in a process of its own, one rank: over gloo on the CPU, and over real NCCL on a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.machine import is_emulated

ROOT = Path(__file__).resolve().parents[2]


def trained(backend: str, device: str) -> str:
    """What the process printed last; it ends in an error where anything is wrong."""
    command = [sys.executable, "-m", "tests.gpu.train", backend, device]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-6000:]
    return ran.stdout.splitlines()[-1]


def test_what_runs_on_a_gpu_runs_on_the_cpu():
    assert trained("gloo", "cpu") == "trained on cpu over gloo"


@pytest.mark.gpu
def test_training_over_nccl():
    if is_emulated():
        pytest.skip("PyTorch has no emulated GPU: ZENC_TEST_GPU is set")
    assert trained("nccl", "cuda:0") == "trained on cuda:0 over nccl"
