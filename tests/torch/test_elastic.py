"""Training under torch's elastic agents: a whole host dies, and the other one goes on from the checkpoint."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from tests.support.ranks import free_port

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("elastic_training.py")
STEPS, SECONDS = 6, 120.0
MEETING = "last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=3"


def agent(folder: Path, port: int, host: int) -> subprocess.Popen[bytes]:
    """Run torchrun for a ``host`` of two ranks, one of one or two such hosts, of which number 0 has the store."""
    own = ["--nnodes", "1:2", "--nproc-per-node", "2", "--max-restarts", "2", "--monitor-interval", "0.2"]
    meets = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job"]
    conf = ["--rdzv-conf", f"{MEETING},is_host={int(host == 0)}", "--local-addr", "127.0.0.1"]
    paths = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "HOST_NUMBER": str(host)}
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *own, *meets, *conf, str(SCRIPT), str(STEPS), str(folder)],
            env={**os.environ, **paths, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
            stdout=log, stderr=log,
        )  # fmt: skip


def until(ready: Callable[[], bool], folder: Path) -> None:
    end = time.monotonic() + SECONDS
    while not ready():
        if time.monotonic() > end:
            pytest.fail((folder / "log").read_text()[-5000:])
        time.sleep(0.1)


def begun(folder: Path, size: int) -> list[list[float]]:
    """Return the initial state of the ranks of groups of ``size``."""
    file = folder / "begun"
    lines = [[float(word) for word in line.split()] for line in file.read_text().splitlines()] if file.exists() else []
    return [line for line in lines if line[1] == size]


def kill(ranks: Iterable[list[float]]) -> None:
    for _, _, process, *_ in ranks:
        with suppress(ProcessLookupError):
            os.kill(int(process), signal.SIGKILL)


def saved(folder: Path) -> dict[str, float]:
    file = folder / "checkpoint.pt"
    return torch.load(file, weights_only=True) if file.exists() else {"step": 0}


@pytest.mark.slow
def test_a_host_dies_and_the_other_one_goes_on(tmp_path: Path) -> None:
    """Four ranks become two, which keep the residuals of all four."""
    port = free_port()
    agents = [agent(tmp_path, port, host) for host in range(2)]
    try:
        until(lambda: len(begun(tmp_path, 4)) == 4 and saved(tmp_path)["step"] == STEPS // 2, tmp_path)
        before = saved(tmp_path)["kept"]
        agents[1].kill()
        kill(line for line in begun(tmp_path, 4) if line[3] == 1)  # workers outlive an agent that is killed
        assert agents[0].wait(SECONDS) == 0, (tmp_path / "log").read_text()[-5000:]
    finally:
        if agents[0].poll() is None:
            agents[0].kill()
            kill(begun(tmp_path, 4) + begun(tmp_path, 2))
    again = begun(tmp_path, 2)
    assert [(size, host, step) for _, size, _, host, step, _ in again] == [(2, 0, STEPS // 2)] * 2
    assert before != 0 and [kept for *_, kept in again] == pytest.approx([before] * 2, rel=1e-4)
    assert saved(tmp_path)["step"] == STEPS
