"""The suites of the lab: their points, and each of them over loopback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.lab import choice
from benchmarks.lab.__main__ import parser as lab_parser
from benchmarks.lab.suite.points import OURS, POINTS, SCHEMES, TRAINING
from benchmarks.lab.suite.results import Result, load
from benchmarks.lab.training.__main__ import parser as training_parser
from benchmarks.pages import ROOT
from zenc.language.files import load_file, locate
from zenc.scheme.resolve import resolve_any


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
