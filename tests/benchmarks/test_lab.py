"""``benchmarks/lab``, its suites and judged plans: bounds, errors found, points; times are not tested."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import judge_plans
from benchmarks.lab import choice
from benchmarks.lab.__main__ import parser as lab_parser
from benchmarks.lab.results import bounds
from benchmarks.lab.settings import LabError, Workload
from benchmarks.lab.suite.points import OURS, POINTS, SCHEMES, TRAINING
from benchmarks.lab.suite.results import Result, load
from benchmarks.lab.training.__main__ import parser as training_parser
from benchmarks.lab.training.report import Training, report
from benchmarks.lab.workloads import Expected, sparse_gradient, units_of
from benchmarks.pages import ROOT
from examples.language_model.model import Sizes
from tests.support import foreign
from zenc.gradients.index_sets import gradients
from zenc.language.files import load_file, locate
from zenc.scheme.resolve import resolve_any

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


def test_points_are_runs_of_less_than_three_minutes_that_compare_the_same():
    assert len({point.name for point in POINTS}) == len(POINTS)
    for point in POINTS:
        assert point.seconds < 180
        if point.module == TRAINING:
            options = training_parser().parse_args(point.words)
            assert {*OURS} & {*options.schemes} and "ddp-sparse" in options.peers
        else:
            options = lab_parser().parse_args(point.words)
            assert options.network == "shaped" and {*SCHEMES} <= {*options.schemes} and "torch-coo" in options.peers
            assert all((ROOT / name).exists() for name in options.schemes if name.endswith(".zen"))
            assert {*OURS} & {*SCHEMES} < {*options.schemes}


def test_points_of_the_choice_compare_auto_with_all_its_candidates():
    chosen, _ = resolve_any(load_file(locate("auto")))
    candidates = {candidate.name for candidate in chosen.candidates}
    assert len(choice.POINTS) == len({point.name for point in choice.POINTS}) == len(choice.WORKLOADS) * 4
    for point in choice.POINTS:
        options = lab_parser().parse_args(point.words)
        compared = {choice.AUTO, *candidates} - (set() if point.name.startswith("full") else {choice.DENSE})
        assert {*options.schemes} == compared and options.peers == [] and options.network == "shaped"
        assert point.seconds < 360


def over_loopback(folder: Path, names: list[str], words: str) -> dict[str, Result]:
    """Run the suite over loopback, for two ranks only since each takes seconds to start."""
    command = [sys.executable, "-m", "benchmarks.lab.suite", "--to", str(folder), "--only", *names]
    words = f"--network loopback --ranks 2 --rounds 2 {words}"
    done = subprocess.run([*command, "--lab", words], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return load(folder, POINTS)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_point_over_loopback(tmp_path):
    possible = [point for point in POINTS if point.possible()]
    drawn = [point.name for point in possible if point.module != TRAINING and "trace" not in point.words]
    over_loopback(tmp_path, drawn, "--units 2000")
    found = over_loopback(tmp_path, ["training-8", "trace-8", "trace-16"], "--dense-rounds 1")
    assert set(found) == {point.name for point in possible}
    assert found["training-8"].title.startswith("2 ranks, loopback; language model")
    assert found["training-8"].apart is not None and found["trace-8"].apart is None


def test_the_page_has_the_results() -> None:
    page = judge_plans.PAGE.read_text(encoding="utf-8")
    assert judge_plans.with_results(page) == page


def test_no_mutant_is_disagreed_about() -> None:
    told = judge_plans.MUTANTS.kept()
    assert (told["mutants"], told["disagreements"]) == (20_000, 0)


def test_a_folder_is_judged(tmp_path: Path) -> None:
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "right.xml").write_text(foreign.ring_allreduce(3))
    (tmp_path / "tool" / "wrong.xml").write_text(foreign.ring_allreduce(3).replace("rrcs", "rcs", 1))
    (tmp_path / "tool" / "other.txt").write_text("no plan")
    rows = list(judge_plans.judged(tmp_path))
    assert [row["verdict"] for row in rows] == ["proved", "wrong"]
    assert "| tool | 2 | 1 | 1 | 0 |" in judge_plans.tables(rows)


def test_a_disagreement_would_be_seen(tmp_path: Path) -> None:
    text, right = judge_plans.mutant(0, random.Random(3))
    assert (judge_plans.verdict(text, tmp_path / "plan") == "proved") == right
