"""The demonstration runs, and reports when the two ways of synchronising diverge."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
TRAIN = CHECKOUT / "examples" / "language_model" / "train.py"
STEPS = 4


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Output of a run of a few steps in two processes with ``--json``."""
    file = tmp_path_factory.mktemp("demo") / "result.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(TRAIN)]
    sizes = ["--steps", str(STEPS), "--batch", "64", "--samples", "64", "--width", "8", "--context", "2"]
    paths = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    done = subprocess.run(
        [*command, *sizes, "--json", str(file)], capture_output=True, text=True, env=environment, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(file.read_text())


@pytest.mark.slow
def test_both_lanes_have_the_same_losses(result: Any) -> None:
    assert result["equal"]
    assert [len(lane["losses"]) for lane in result["lanes"].values()] == [STEPS, STEPS]


@pytest.mark.slow
def test_it_says_what_ran(result: Any) -> None:
    assert result["compiled"]["scheme"] == "balanced"
    assert Path(str(result["compiled"]["kernels"])).exists()
    assert result["text"]["vocabulary"] == 60_000
    assert result["lanes"]["zenc"]["bytes sent, zenc's own count"]
