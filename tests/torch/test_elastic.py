"""Training under torch's elastic agents: ranks die, or a whole host does, and the rest goes on from the checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.ranks import free_port

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("elastic_training.py")
STEPS, SECONDS = 8, 150.0
MEETING = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=5"


def agent(folder: Path, port: int, **variables: str) -> subprocess.Popen[bytes]:
    """torchrun for a host of two ranks, one of one or two such hosts."""
    own = ["--nnodes", "1:2", "--nproc-per-node", "2", "--max-restarts", "2", "--monitor-interval", "0.2"]
    meets = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job"]
    command = [*own, *meets, "--rdzv-conf", MEETING, "--local-addr", "127.0.0.1", str(SCRIPT), str(STEPS), str(folder)]
    paths = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **variables}
    log = (folder / "log").open("ab")
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *command],
        env={**os.environ, **paths, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        stdout=log, stderr=log, start_new_session=True,
    )  # fmt: skip


def begun(folder: Path, ranks: int, after: int = 0) -> list[list[float]]:
    """What ``ranks`` ranks began with: number, number of ranks, step, sum of what is kept; behind ``after`` lines."""
    until, file = time.monotonic() + SECONDS, folder / "begun"
    while time.monotonic() < until:
        found = file.read_text().splitlines() if file.exists() else []
        lines = [[float(word) for word in line.split()] for line in found[after:]]
        if sum(line[1] == ranks for line in lines) == ranks:
            return lines
        time.sleep(0.1)
    pytest.fail((folder / "log").read_text()[-5000:])


@pytest.mark.slow
def test_a_host_dies_and_the_other_one_goes_on(tmp_path: Path) -> None:
    """Four ranks become two; what all four had left out so far is kept by the two."""
    port = free_port()
    first = agent(tmp_path, port)
    time.sleep(1.0)  # it has the store in which they meet
    second = agent(tmp_path, port)
    before = len(begun(tmp_path, 4))
    wait_for_step(tmp_path, STEPS // 2)
    saved: dict[str, Any] = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    os.killpg(second.pid, signal.SIGKILL)
    again = begun(tmp_path, 2, before)
    (tmp_path / "go").touch()
    assert first.wait(SECONDS) == 0, (tmp_path / "log").read_text()[-5000:]
    assert [line[1:3] for line in again] == [[2, STEPS // 2]] * 2
    assert saved["kept"] != 0 and all(abs(line[3] - saved["kept"]) < 1e-3 for line in again)
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["step"] == STEPS


def wait_for_step(folder: Path, step: int) -> None:
    """Until the checkpoint is that of ``step``."""
    until, file = time.monotonic() + SECONDS, folder / "checkpoint.pt"
    while not (file.exists() and torch.load(file, weights_only=True)["step"] == step):
        assert time.monotonic() < until, (folder / "log").read_text()[-5000:]
        time.sleep(0.1)
