"""DDP with zenc in separate processes: over gloo on the CPU, and over real NCCL on a GPU that they share."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.machine import is_emulated, lacks_several_ranks
from tests.support.ranks import free_port
from zenc.runtime.gpu.driver import find_nccl

ROOT = Path(__file__).resolve().parents[2]


def ran(ranks: int, program: str, *arguments: str) -> str:
    """Return the last line of rank 0's output; a rank fails where anything is wrong."""
    command = [sys.executable, "-m", f"tests.gpu.{program}", *arguments]
    world = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    started = [
        subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **world, "RANK": str(rank)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    printed = [process.communicate(timeout=280)[0] for process in started]
    assert [process.returncode for process in started] == [0] * ranks, "\n".join(printed)[-6000:]
    return printed[0].splitlines()[-1]


def over_nccl(ranks: int, program: str) -> str:
    if is_emulated():
        pytest.skip("PyTorch has no emulated GPU: ZENC_TEST_GPU is set")
    if ranks > 1 and (why := lacks_several_ranks(find_nccl())):
        pytest.skip(why)
    return ran(ranks, program, "nccl", "cuda:0")


@pytest.mark.slow
def test_what_runs_on_a_gpu_runs_on_the_cpu():
    assert ran(2, "train", "gloo", "cpu") == "trained on cpu over gloo: 2 ranks"
    assert ran(2, "features", "gloo", "cpu").endswith("features on cpu over gloo: 2 ranks")


@pytest.mark.gpu
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_training_over_nccl(ranks):
    assert over_nccl(ranks, "train").startswith("trained on cuda:0 over nccl")


@pytest.mark.gpu
@pytest.mark.parametrize("ranks", [1, 2])
def test_features_over_nccl(ranks):
    assert f"features on cuda:0 over nccl: {ranks} rank" in over_nccl(ranks, "features")


@pytest.mark.gpu
@pytest.mark.parametrize("ranks", [1, 2])
def test_graphs_over_nccl(ranks):
    assert over_nccl(ranks, "graphs").startswith("replayed on cuda:0 over nccl")
