"""``benchmarks/lab``: its bounds, the errors it finds, and that it runs; its times are not tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.lab.results import bounds
from benchmarks.lab.settings import LabError, Workload
from benchmarks.lab.training.report import Training, report
from benchmarks.lab.workloads import Expected, sparse_gradient, units_of
from examples.language_model.model import Sizes
from zenc.gradients.index_sets import gradients

ROOT = Path(__file__).resolve().parents[2]
SMALL = Workload("rows", 3000, 8, 0.05, 1.05)


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_bounds_of_a_dense_tensor_are_those_of_a_ring(size):
    """Each rank holds everything, so B1 is the tensor and B2 is 2 (n - 1) / n of it."""
    found = bounds(gradients(1200, 4, "f32", [range(1200)] * size), 8e6)
    tensor = 1200 * 4 * 4
    assert found.receive_bytes == (tensor if size > 1 else 0)
    assert found.bandwidth_bytes == 2 * (size - 1) * tensor // size
    assert found.seconds == found.bandwidth_bytes / 1e6


def test_a_wrong_sum_is_found():
    of = units_of(SMALL, 3, 1)
    total = sum(sparse_gradient(of, rank, 1).to_dense() for rank in range(3))
    expected = Expected(of, 1)
    expected.check(total, "right")
    total[int(of.held[0][0]), 0] += 1e-4
    with pytest.raises(LabError, match="wrong"):
        expected.check(total, "wrong")
    total[int(of.held[0][0])] = 0
    with pytest.raises(LabError, match="units"):
        expected.check(total, "short")


@pytest.mark.slow
def test_two_ranks_over_loopback(tmp_path):
    """A command writes JSON and a table, with the bytes that ``zenc explain`` predicts."""
    shape = ["--units", "2000", "--density", "0.05", "--zipf", "1.05", "--seed", "4"]
    command = [sys.executable, "-m", "benchmarks.lab", "--ranks", "2", "--network", "loopback", *shape, "--rounds", "2"]
    wanted = ["--schemes", "holders", "--json", str(tmp_path / "lab.json")]
    done = subprocess.run([*command, *wanted], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "holders" in done.stdout and "round   2 of 2" in done.stderr
    peers = json.loads((tmp_path / "lab.json").read_text())["peers"]
    explain = [sys.executable, "-m", "zenc", "explain", "holders", "--ranks", "2", *shape, "--json"]
    counted = json.loads(subprocess.run(explain, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert peers["holders"]["counted_sent"] == counted["bytes"]["total"]["most_sent"]
    assert peers["torch-coo"]["rounds"] == peers["torch-dense"]["rounds"] == 2


def records(**losses: list[float]) -> list[dict[str, object]]:
    """Return records of two ranks, the second of which has a loss of zero in every step."""
    times = {"round": 0, "started": 1.0, "ended": 2.0, "processor": 0.5, "interface": None, "counted": None}
    both = (losses, {name: [0.0] * len(of) for name, of in losses.items()})
    return [{"machine": {"cores": 2}, "samples": {name: [times] for name in of}, "losses": of} for of in both]


def test_a_lane_that_does_not_train_as_the_others_is_found():
    training = Training(2, "", 70_000, "2mb", Sizes(), ("holders", "bad"), "holders", 2, 1, 2, 1)
    assert report(training, {}, records(holders=[8.0, 6.0], bad=[8.0])).losses["holders"] == [4.0, 3.0]
    for bad in ([8.0, 6.001], [8.0, float("nan")]):
        with pytest.raises(LabError, match="bad does not train as holders does: its losses differ by"):
            report(training, {}, records(holders=[8.0, 6.0], bad=bad))
