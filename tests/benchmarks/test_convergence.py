"""``benchmarks.convergence``: ranks that are played train as processes do, and the page says what the files hold."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from benchmarks.convergence import __main__, trainer
from benchmarks.convergence.__main__ import Progress, curve, folder_of_parts, part
from benchmarks.convergence.curves import FOLDER, Curve, Curves, load, save
from benchmarks.convergence.page import PAGE, figure, section, target_of, written
from benchmarks.convergence.runs import EXPERIMENTS, RUNS, Experiment
from benchmarks.convergence.trainer import Look
from tests.benchmarks.convergence_jobs import SIZES, characters

BY_NAME = {run.name: run for run in RUNS}
JOBS = "tests.benchmarks.convergence_jobs:"


@pytest.mark.parametrize("name", ["top", "dgc-warm"])
def test_processes_under_ddp_train_to_the_same_bits(four, name):
    run = BY_NAME[name]
    by_ddp = four.run(JOBS + "by_ddp", run=run, steps=4)
    assert by_ddp == [by_ddp[0]] * 4
    assert four.run(JOBS + "played", size=1, run=run, steps=4) == by_ddp[:1]


def test_a_run_from_a_checkpoint_is_the_same_and_one_that_forgets_is_not(monkeypatch, tmp_path):
    monkeypatch.setattr(trainer, "text", characters)
    half = tmp_path / "half"
    through, again, forgotten = (curve(BY_NAME[name], 1, 8, SIZES, half) for name in ("top", "restarted", "forgotten"))
    assert through.weights == again.weights != forgotten.weights
    assert through.looks == again.looks and through.end.step == 8
    assert through.end.left and through.end.bits < 7
    assert half.exists() and replace(again, seconds=0) == replace(curve(BY_NAME["restarted"], 1, 8, SIZES), seconds=0)


def test_what_has_been_trained_is_not_trained_again(monkeypatch, tmp_path, capsys):
    asked = []

    def trained(run, seed, steps, **_):
        asked.append((run.name, seed))
        return replace(curves(run.name, 3.0).of_seeds[0], seed=seed)

    monkeypatch.setattr(__main__, "curve", trained)
    about = {"steps": 20, "commit": "0123456789"}
    monkeypatch.setattr(__main__, "PARTS", tmp_path)
    parts = folder_of_parts(about)
    (first, second) = (part(BY_NAME["top"], seed, about, parts) for seed in (1, 2))
    assert part(BY_NAME["top"], 1, about, parts) == first and asked == [("top", 1), ("top", 2)]
    assert folder_of_parts(about) == parts and second.of_seeds[0].seed == 2
    tell = Progress(3)
    tell(first)
    assert "1 of 3, about " in (said := capsys.readouterr().err) and "top, seed 1: 3.000 bits" in said
    changed = folder_of_parts({**about, "commit": "0123456789+"})
    (changed / "1").mkdir()
    assert not any(folder_of_parts({**about, "commit": "0123456789+"}).iterdir()), "sources may have changed since"


def test_every_run_is_shown_and_every_name_is_one():
    shown = [name for experiment in EXPERIMENTS for name in experiment.runs]
    assert set(shown) == set(BY_NAME) and len(BY_NAME) == len(RUNS)


def curves(run: str, *ends: float) -> Curves:
    """Seeds that fall from 6 bits to each of ``ends`` in two looks."""
    of_seeds = [
        Curve(seed, [Look(10, 6.0, 1.0, 500, None), Look(20, end, 1.0, 1000, 0.5)], f"w{seed}", 1.0)
        for seed, end in enumerate(ends, 1)
    ]
    return Curves(run, {"steps": 20}, of_seeds)


def test_what_a_table_says(tmp_path):
    found = {"dense": curves("dense", 4.0, 3.0), "top": curves("top", 4.5, 2.5), "sign": curves("sign", math.inf, 3.0)}
    for each in found.values():
        save(each, tmp_path)
        assert json.loads((tmp_path / f"{each.run}.json").read_text())["run"] == each.run
    assert load(RUNS, tmp_path) == found
    assert target_of(found["dense"]) == 6.0 and found["top"].steps_to(5.25) == pytest.approx((15 + 12.142857) / 2)
    assert found["dense"].steps_to(3.5) is None, "one seed never gets there"
    text = section(Experiment("tried", "Tried", "Why?", ("dense", "top", "sign")), found)
    assert "| top 1 %, residual | 3.500 (2.500 to 4.500) | +0.000 (-0.500 to +0.500) | 10 | 0.000 | 1.0 | 0.5 |" in text
    assert "| sign, residual | diverged | diverged |" in text
    apart = replace(found["top"], of_seeds=[replace(each, weights="x") for each in found["top"].of_seeds])
    told = section(Experiment("tried", "Tried", "Why?", ("top", "restarted")), {**found, "restarted": apart})
    assert "OTHER WEIGHTS THAN" in told


def test_the_page_and_its_figures_are_those_of_the_files(assert_plot):
    found = load(RUNS)
    assert PAGE.read_text(encoding="utf-8") == written(PAGE.read_text(encoding="utf-8"))
    drawn = [experiment for experiment in EXPERIMENTS if experiment.runs[0] in found]
    for experiment in drawn:
        assert_plot(f"benchmarks/convergence/{experiment.name}.svg", figure(experiment, found))
    files = {f"{name}.json" for name in found} | {f"{experiment.name}.svg" for experiment in drawn}
    assert {each.name for each in FOLDER.glob("*")} == files
    assert len({tuple(sorted(each.about.items())) for each in found.values()}) <= 1, "all runs are of one scale"
