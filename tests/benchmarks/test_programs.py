"""Programs of ``benchmarks`` without tests of their own run, and the files they name exist."""

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import bounds, calls, holders, one_machine, papers, publish
from benchmarks.averaging import SMALL, WAYS, Ranks, averaging_of
from benchmarks.bigram import __main__ as bigram
from benchmarks.bigram.model import LANES, ZENC
from benchmarks.lab.__main__ import parser, settings_of
from benchmarks.lab.horovod import why_not
from benchmarks.lab.launch import launch
from benchmarks.lab.results import rows_of
from benchmarks.lab.settings import Settings
from benchmarks.lab.workloads import KINDS
from benchmarks.pages import ROOT
from zenc.lab.cluster import why_not as why_no_network


def run(*words: str) -> str:
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_all_programs_find_what_they_import() -> None:
    programs = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "__init__")
    assert len(programs) > 20
    assert [name for name in programs if import_module(f"benchmarks.{name}").__doc__ is None] == []


@pytest.mark.slow
def test_the_demonstration() -> None:
    said = run("-m", "benchmarks.lab.demo", "--ranks", "2", "--steps", "2", "--scheme", "holders")
    assert "zenc, holders" in said and "Losses are equal in every step" in said
    assert ("No slow network here" if why_no_network() else "Between hosts on 100 Mbit/s") in said


def test_every_step_of_the_half_hour_on_a_gpu_runs_what_there_is() -> None:
    steps = re.findall(r"^step (\w+) (\d+) (.*)$", (ROOT / "tests/gpu/half_hour.sh").read_text("utf-8"), re.MULTILINE)
    assert len({name for name, _, _ in steps}) == len(steps) == 15 and all(0 < int(each) <= 600 for _, each, _ in steps)
    commands = " ".join(command for _, _, command in steps)
    assert all((ROOT / path).exists() for path in re.findall(r"tests/[\w/.]+", commands))
    assert all(find_spec(module) for module in re.findall(r" -m (\w+\.[\w.]+)", commands))


def test_without_horovod_the_lab_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "horovod"] or ["horovod"]:
        monkeypatch.setitem(sys.modules, name, None)
    assert re.match(r"Horovod \(.*horovod.*\); build it with Gloo and PyTorch, as benchmarks/.+ says", why_not())
    options = parser().parse_args(["--network", "loopback", "--schemes", "holders"])
    assert settings_of(options).peers == ("holders", "torch-dense", "torch-coo")
    assert "horovod-coo takes Horovod (" in (said := capsys.readouterr().err) and "Going on without it" in said


@pytest.mark.skipif(bool(why_not()), reason="takes Horovod, which benchmarks/reports/benchmarks.md says how to build")
def test_horovod_among_three_ranks(tmp_path: Path) -> None:
    lab = ("-m", "benchmarks.lab", "--ranks", "3", "--network", "loopback", "--units", "2000", "--rounds", "3")
    run(*lab, "--schemes", "--peers", "torch-coo", "horovod-coo", "--json", str(tmp_path / "lab.json"))
    assert json.loads((tmp_path / "lab.json").read_text())["peers"]["horovod-coo"]["rounds"] == 3


def test_averages_of_a_period_make_all_ranks_equal() -> None:
    ranks = Ranks(0, own_text=True, sizes=SMALL, ranks=4)
    ranks.step(0.1)
    mean = ranks.values.mean(dim=0)
    assert ranks.apart > 0 and len(WAYS) == 5
    for groups in averaging_of("[rows(2), columns(2)]").groups(4):
        ranks.average(groups)
    assert ranks.values.sub(mean).abs().max() < 1e-6


def test_what_is_published_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "RATES", (1e-5,))
    found = {(each["every"], each["dtype"]): each for each in publish.measured(1, 1)}
    assert set(found) == {(every, dtype) for every in publish.EVERY for dtype in publish.DTYPES}
    assert found[1, "bfloat16"]["changed"] < found[10, "bfloat16"]["changed"] < 1


def test_regions_that_follow_the_gradient_are_less_even_than_a_permutation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(papers, "OLD", 1)
    found = papers.measured(2)
    assert 1 < found["permutation"] < found["regions"] < found["ranges"]
    taken = [torch.arange(0, 800, 10), torch.arange(800)]
    assert papers.regions(taken, 800) == [*range(0, 800, 100), 800]


def test_a_cluster_gets_the_bound_that_is_written() -> None:
    written = next(each for each in bounds.PART.kept() if each["cluster"] == "ring(8)")
    found = bounds.point("ring(8)")
    assert {name: found[name] for name in ("ranks", "bound", "share", "trees", "depth", "chunks")} == {
        name: near(written[name]) for name in ("ranks", "bound", "share", "trees", "depth", "chunks")
    }


def test_figures_of_a_call_are_those_of_the_samples_of_its_ranks() -> None:
    """Rank 0 begins a call of 10 ms, and the reference takes 20; each rank has 4 ms of a processor."""
    base, own = ([{"started": 0.0, "ended": took, "processor": 0.004} for _ in range(2)] for took in (0.02, 0.01))
    samples = {
        name: [{"round": 0, "interface": None, "counted": None, **each} for each in of]
        for name, of in (("torch", base), ("balanced/x/rows", own))
    }
    records = [
        {"machine": {"cores": os.cpu_count()}, "samples": {name: [of[rank]] for name, of in samples.items()}}
        for rank in range(2)
    ]
    run = Settings(2, "", 0, "", KINDS["rows"], tuple(samples), "torch", 1, 1, 0, 1)
    row = rows_of(run, records)["balanced/x/rows"]
    figures = {"ms": 10.0, "processor": 4.0, "ratio": 2.0, "low": 2.0, "high": 2.0}
    assert one_machine.row_of(run, "it", row) == {"ranks": 2, "peer": "it", **figures}
    assert calls.row_of("balanced/x/rows", row, 2).items() >= {"way": "balanced", "ms": 10.0, "processor": 4.0}.items()


def near(value: float) -> object:
    return pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("number", [0, len(holders.RANKS) + 1])
def test_holders_among_many_ranks_are_predicted_as_written(number: int) -> None:
    written = holders.kept()["scale"][number]
    found = holders.scale_point(written["gradient"], written["ranks"])
    assert {name: found[name] for name in written} == {
        name: near(value) if isinstance(value, float) else value for name, value in written.items()
    }


@pytest.mark.parametrize("number", [0, len(holders.CLUSTERS) + 1])
def test_holders_across_machines_are_predicted_as_written(number: int) -> None:
    written = holders.kept()["tiers"][number]
    found = holders.tier_point(written["gradient"], written["machines"], written["ranks"])
    for kind in ("seconds", "carried"):
        assert found[kind] == {name: near(written[kind][name]) for name in holders.SCHEMES}


@pytest.mark.slow
def test_all_lanes_train_the_same_bigram_table(tmp_path: Path) -> None:
    np.save(tmp_path / "words.npy", (np.arange(4000) ** 2 % 211).astype(np.int32))
    small = ["--rows", "3001", "--width", "6", "--tokens", "40", "--rounds", "2", "--network", "loopback"]
    settings = bigram.settings_of(bigram.parser().parse_args(small), 2, "")
    records = launch(settings, 120, ("benchmarks.bigram.lanes", str(tmp_path / "words.npy")))
    found = bigram.point(settings, 0.0, records)
    assert {name: lane["apart"] for name, lane in found["lanes"].items()} == dict.fromkeys(LANES, 0.0)
    assert all(len(losses) == 4 and len(set(losses)) == 4 for losses in records[0]["losses"].values())
    assert records[0]["losses"][ZENC] != records[1]["losses"][ZENC], "ranks have tokens of their own"
