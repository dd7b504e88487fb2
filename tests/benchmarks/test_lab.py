"""``benchmarks/lab``: what it draws, bounds, pairs and shows. Its times are not for tests."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from benchmarks.lab.__main__ import parser, settings_of
from benchmarks.lab.bounds import bounds
from benchmarks.lab.network.cluster import why_not
from benchmarks.lab.options import rate_of
from benchmarks.lab.plots import plot
from benchmarks.lab.results import Spread, report, spread
from benchmarks.lab.settings import LabError, Settings, Workload, bits_per_second
from benchmarks.lab.worker import turns
from benchmarks.lab.workloads import KINDS, Expected, sparse_gradient, units_of, workload_of
from zenc.gradients.index_sets import gradients

ROOT = Path(__file__).resolve().parents[2]
SMALL = Workload("rows", 3000, 8, 0.05, 1.05)


def settings(**changes: object) -> Settings:
    base = Settings(2, "8mbit", 70_000, "2mb", SMALL, ("balanced", "torch-dense"), "balanced", 4, 2, 2, 7)
    return Settings.from_json({**base.to_json(), **changes})


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_bounds_of_a_dense_tensor_are_those_of_a_ring(size):
    """All ranks hold all: B1 is the tensor, B2 is 2 (n - 1) / n of it."""
    found = bounds(gradients(1200, 4, "f32", [range(1200)] * size), 8e6)
    tensor = 1200 * 4 * 4
    assert found.receive_bytes == (tensor if size > 1 else 0)
    assert found.bandwidth_bytes == 2 * (size - 1) * tensor // size
    assert found.seconds == found.bandwidth_bytes / 1e6


def test_bounds_of_units_that_one_rank_holds():
    """Nothing is shared: each rank receives what the others hold, and sends its own n - 1 times."""
    found = bounds(gradients(100, 1, "f32", [range(0, 10), range(10, 20), range(20, 50)]), None)
    assert found.receive_bytes == 40 * 4, "ranks 0 and 1 lack 40 units, rank 2 lacks 20"
    assert found.bandwidth_bytes == 50 * 2 * 4 // 3
    assert found.seconds is None


def test_quartiles():
    assert spread([3.0, 1.0, 2.0, 5.0, 4.0]) == Spread(2.0, 3.0, 4.0)
    assert spread([7.0]) == Spread(7.0, 7.0, 7.0)


@pytest.mark.parametrize(("kind", "density"), [("rows", 0.02), ("rows", 0.1), ("elements", 0.01), ("elements", 0.05)])
def test_standard_workloads_have_their_density(kind, density):
    load = workload_of(kind, density, None, KINDS[kind].units // 10, False)
    of = units_of(load, 2, seed=3)
    assert of.density == pytest.approx(density) and of.width == KINDS[kind].width
    hot = [int((ids < of.units // 10).sum()) / len(ids) for ids in of.held]
    assert min(hot) > 0.3 if kind == "rows" else max(hot) < 0.15, "rows are in the order of their frequency"


def test_workloads_hang_on_the_seed_alone():
    first, again, other = (units_of(SMALL, 3, seed) for seed in (5, 5, 6))
    assert all(np.array_equal(a, b) for a, b in zip(first.held, again.held, strict=True))
    assert not np.array_equal(first.held[0], other.held[0]) and not np.array_equal(first.held[0], first.held[1])
    gradient, same = (sparse_gradient(of, 1, 5) for of in (first, again))
    assert torch.equal(gradient.to_dense(), same.to_dense()) and gradient.shape == (3000, 8)


def test_permuted_units_overlap_as_before_and_are_spread():
    plain = units_of(SMALL, 4, 1)
    mixed = units_of(Workload("rows", 3000, 8, 0.05, 1.05, permuted=True), 4, 1)
    assert sorted(plain.holders()) == sorted(mixed.holders())
    assert min((ids < 300).mean() for ids in plain.held) > 3 * max((ids < 300).mean() for ids in mixed.held)


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


def test_all_ranks_take_turns_alike_and_dense_ones_seldom():
    order = list(turns(settings(rounds=4, dense_rounds=2)))
    assert order == list(turns(settings(rounds=4, dense_rounds=2)))
    assert [number for number, name in order if name == "balanced"] == [-2, -1, 0, 1, 2, 3]
    assert [number for number, name in order if name == "torch-dense"] == [-1, 0, 1]
    assert len({tuple(n for k, n in order if k == number) for number in (-1, 0, 1)}) == 2, "the order changes"


def sample(number: int, started: float, ended: float, sent: int) -> dict[str, object]:
    times = {"round": number, "started": started, "ended": ended, "processor": 0.5}
    return {**times, "interface": [sent, sent // 2], "counted": [sent - 10, sent // 2 - 10]}


def known_records() -> list[dict[str, object]]:
    """Two ranks; ``balanced`` takes 1, 2, 3, 4 s and ``torch-dense`` 2 and 6 s in the first two rounds."""
    records = []
    for rank in range(2):
        fast = [sample(k, 10.0 + rank / 8, 11.0 + k - (1 - rank) / 4, 1000) for k in range(4)]
        slow = [sample(k, 50.0, 52.0 + 4 * k - rank / 2, 4000 + rank) for k in range(2)]
        samples = {"balanced": [sample(-1, 0.0, 9.0, 0), *fast], "torch-dense": slow}
        records.append({"rank": rank, "machine": {"cores": 2}, "samples": samples})
    return records


def test_a_report_of_known_records():
    found = report(settings(), bounds(units_of(SMALL, 2, 7), 8e6), known_records())
    balanced, dense = found.rows["balanced"], found.rows["torch-dense"]
    assert balanced.rounds == 4 and balanced.seconds == Spread(1.75, 2.5, 3.25)
    assert balanced.ratio == Spread(1.0, 1.0, 1.0)
    assert dense.ratio == Spread(2.25, 2.5, 2.75), "of 2 / 1 and 6 / 2, and not of medians"
    assert (dense.sent, dense.counted_sent, dense.interface_received) == (4001, 3991, 2000)
    assert dense.wire == pytest.approx((4001 * 8 / 8e6 / 2 + 4001 * 8 / 8e6 / 6) / 2)
    assert dense.processor == pytest.approx((1 / 2 / 2 + 1 / 2 / 6) / 2)
    ratios = found.to_json()["peers"]["torch-dense"]["bounds"]
    assert ratios["bandwidth"] == 4001 / found.bounds.bandwidth_bytes
    assert ratios["receive"] == 2000 / found.bounds.receive_bytes
    assert ratios["time"] == 4.0 / found.bounds.seconds


def test_the_plot_shows_every_peer():
    root = ElementTree.fromstring(plot(report(settings(), bounds(units_of(SMALL, 2, 7), 8e6), known_records())))
    texts = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("balanced") == texts.count("torch-dense") == 2 and "2500.000" in texts
    assert len(root.findall("{http://www.w3.org/2000/svg}rect")) == 1 + 4


@pytest.mark.parametrize(("rate", "bits"), [("100mbit", 1e8), ("1.5Gbit", 1.5e9), ("8bit", 8)])
def test_rates(rate, bits):
    assert bits_per_second(rate) == bits


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rate", "fast"], "'fast' is no rate"),
        (["--rate", "0mbit"], "'0mbit' is no rate"),
        (["--schemes", "--peers"], "nothing to compare"),
        (["--reference", "zen"], "--reference zen is not among"),
        (["--rounds", "0"], "1 or more"),
    ],
)
def test_what_can_not_be_measured_is_refused(arguments, said):
    with pytest.raises(LabError, match=re.escape(said)):
        settings_of(parser().parse_args(["--network", "loopback", *arguments]))


def test_where_it_can_not_be_shaped_it_says_so_and_takes_loopback(monkeypatch, capsys):
    monkeypatch.setattr(
        "benchmarks.lab.network.namespaces.shutil.which", lambda name, path: None if name == "tc" else name
    )
    assert why_not() == "the program tc (Debian: apt install iproute2)"
    assert rate_of("loopback", "100mbit") == "" and not capsys.readouterr().err
    assert rate_of("auto", "100mbit") == ""
    assert "takes the program tc (Debian: apt install iproute2); running over loopback" in capsys.readouterr().err
    with pytest.raises(LabError, match="takes the program tc"):
        rate_of("shaped", "100mbit")


def test_two_ranks_over_loopback(tmp_path):
    """From the command to JSON, table and plot; the bytes are those that ``zenc explain`` counts."""
    shape = ["--units", "2000", "--density", "0.05", "--zipf", "1.05", "--seed", "4"]
    command = [sys.executable, "-m", "benchmarks.lab", "--ranks", "2", "--network", "loopback", *shape, "--rounds", "2"]
    wanted = ["--schemes", "holders", "--json", str(tmp_path / "lab.json"), "--plot", str(tmp_path / "lab.svg")]
    done = subprocess.run([*command, *wanted], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "holders" in done.stdout and "round   2 of 2" in done.stderr
    peers = json.loads((tmp_path / "lab.json").read_text())["peers"]
    explain = [sys.executable, "-m", "zenc", "explain", "holders", "--ranks", "2", *shape, "--json"]
    counted = json.loads(subprocess.run(explain, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert peers["holders"]["counted_sent"] == counted["bytes"]["total"]["most_sent"]
    assert peers["torch-coo"]["rounds"] == peers["torch-dense"]["rounds"] == 2
    assert (tmp_path / "lab.svg").read_text().startswith("<svg")
