"""``benchmarks/lab/suite``: its points, what is kept of them, targets, figures, and the page that is made of it all."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.lab.__main__ import parser as lab_parser
from benchmarks.lab.bounds import Bounds
from benchmarks.lab.results import Row, Spread, spread
from benchmarks.lab.settings import ROOT, LabError, Settings
from benchmarks.lab.show import described
from benchmarks.lab.suite import __main__ as suite
from benchmarks.lab.suite import run
from benchmarks.lab.suite.figures import figures
from benchmarks.lab.suite.measure import about
from benchmarks.lab.suite.page import section, targets, with_results
from benchmarks.lab.suite.points import OURS, POINTS, RANGE, SCHEMES, TRAINING, Point
from benchmarks.lab.suite.results import Result, load, rounded, run_of, save, text_of
from benchmarks.lab.suite.targets import TARGETS
from benchmarks.lab.training.__main__ import parser as training_parser
from benchmarks.lab.workloads import KINDS
from benchmarks.markdown import BEGIN, END

FOLDER = ROOT / "docs" / "benchmarks"
COMMITTED = load(FOLDER, POINTS)
BY_NAME = {point.name: point for point in POINTS}


def result(name: str, times: dict[str, list[float]], rate: str = "100mbit", **counted: int) -> Result:
    """Of the point ``name``: ``times`` in seconds, bytes as ``counted`` or 1000."""
    peers = tuple(times)
    settings = Settings(8, rate, 70_000, "2mb", KINDS["rows"], peers, peers[0], 3, 3, 2, 1)
    run = run_of(settings.to_json())
    rows = {}
    for peer, of_peer in times.items():
        sent = None if peer.startswith("torch") else counted.get(peer, 1000)
        ratio = spread([a / b for a, b in zip(of_peer, times[peers[0]], strict=False)])
        rows[peer] = Row(len(of_peer), spread(of_peer), ratio, sent, sent, 1100, 1100, 0.9, 0.1)
    machine = {"cores": 2, "kernel": "6.1", "python": "3.11.7", "torch": "2.13.0", **about(), "processor": "Some CPU"}
    command = f"python -m benchmarks.lab for {name}"
    return Result(name, command, described(settings), run, machine, Bounds(900, 1000, 0.5), rows, times, 61.4, 0.0041)


ROWS = result(
    "rows-8",
    {
        "holders": [1.0, 2.0, 4.0],
        "balanced": [1.25, 2.5, 4.4],
        "sparcml": [3.0, 2.0, 5.0],
        "torch-coo": [2.0, 3.0, 8.0],
    },
    holders=1010,
    balanced=1200,
)


def verdict(what: str, **results: Result) -> list[str]:
    """The row of the target that is about ``what``."""
    by_point = {name.replace("_", "-"): each for name, each in results.items()}
    lines = [line for line in targets(by_point).splitlines() if line.startswith(f"| {what} |")]
    assert len(lines) == 1
    return [cell.strip() for cell in lines[0].split("|")[2:-1]]


def test_the_page_is_made_of_the_results(assert_golden, assert_plot):
    drawn = figures(COMMITTED)
    page = suite.PAGE.read_text(encoding="utf-8")
    assert_golden("../../benchmarks/reports/benchmarks.md", with_results(page, COMMITTED, drawn))
    assert {path.name for path in FOLDER.glob("*.svg")} == set(drawn)
    for name, svg in drawn.items():
        assert_plot(f"benchmarks/{name}", svg)


def test_committed_results_are_those_of_the_points_as_they_are():
    assert {path.stem for path in FOLDER.glob("*.json")} == set(COMMITTED)
    for name, found in COMMITTED.items():
        assert found.point == name and found.command == BY_NAME[name].command, f"measure {name} again"
        assert found.settings.rate and (FOLDER / f"{name}.json").stat().st_size < 10_000
        for peer, row in found.rows.items():
            assert spread(found.samples[peer]).median == pytest.approx(row.seconds.median, rel=1e-4)
            assert found.over(peer, found.settings.reference).median == pytest.approx(row.ratio.median, rel=1e-3)


def test_points_are_runs_of_less_than_three_minutes_that_compare_the_same():
    assert len(BY_NAME) == len(POINTS)
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


def test_results_are_small_and_come_back_as_they_were(tmp_path):
    save(tmp_path, ROWS)
    assert load(tmp_path, POINTS) == {"rows-8": ROWS}
    assert json.loads((tmp_path / "rows-8.json").read_text()) == json.loads(json.dumps(ROWS.to_json()))
    assert rounded({"a": [1.23456789, 123456.7], "b": 1234567}) == {"a": [1.2346, 123460.0], "b": 1234567}
    assert "\n" in text_of({"point": "x", "peers": {"a": {}, "b": {}}}) and load(tmp_path / "none", POINTS) == {}


def test_ratios_are_paired_to_the_best_of_ours():
    assert ROWS.best() == "holders"
    assert ROWS.over("sparcml", "holders") == Spread(1.125, 1.25, 2.125), "of 3 / 1, 2 / 2 and 5 / 4"
    few = result("rows-8", {"balanced": [1.0, 2.0], "torch-dense": [8.0]})
    assert few.over("torch-dense", few.best()) == Spread(8.0, 8.0, 8.0), "in the rounds that it took part in"
    with pytest.raises(LabError, match="has none of holders, balanced, hier"):
        result("rows-8", {"zen": [1.0]}).best()


def test_targets_are_met_or_missed_by_what_was_measured():
    coo, sparcml = "PyTorch's sparse all-reduce over best, N = 8", "`sparcml` over best, N = 8"
    assert verdict(coo, rows_8=ROWS) == ["at least 1.68", "2.000 (1.750-2.000)", "met"]
    assert verdict(sparcml, rows_8=ROWS) == ["at least 1.22", "1.250 (1.125-2.125)", "met"]
    balanced = "Balanced Parallelism of ours, `balanced`, over best, N = 8"
    assert verdict(balanced, rows_8=ROWS)[1:] == ["1.250 (1.175-1.250)", "met"]
    assert verdict("bytes of best over B2, N = 8", rows_8=ROWS) == ["at most 1.02", "1.010", "met"]
    assert verdict("time of best over B2 / rate, N = 8", rows_8=ROWS) == ["at most 1.12", "4.000", "missed"]
    queue = "best with queues of 256 kB over best with those of 2 MB"
    slow = result("rows-8-queue", {"holders": [2.2, 2.2], "balanced": [1.0, 1.0]})
    assert verdict(queue, rows_8=ROWS, rows_8_queue=slow)[1:] == ["1.100", "missed"], "of holders, though not best then"
    few = result("elements-8-5pct", {"balanced": [1.0], "zen": [1.0]}, balanced=100, zen=107)
    assert verdict("elements at 5 %, bytes: `zen` over ours that sends least", elements_8_5pct=few)[1:] == [
        "1.070",
        "missed",
    ]


def test_what_was_not_measured_has_no_number():
    for target in TARGETS:
        assert target.quantity({}) is None
    assert f"Of {len(TARGETS)}: 0 met, 0 missed, {len(TARGETS)} not measured." in targets({})
    zen = "Balanced Parallelism as published, `zen`, over best, N = 8"
    assert verdict(zen, rows_8=ROWS)[1:] == ["", "not measured"], "zen did not take part"
    assert section(BY_NAME["rows-2"], {}) == "### `rows-2`: rows at 2 %, 2 ranks\n\nNot measured."


def test_times_over_loopback_meet_no_target():
    looped = result("rows-8", ROWS.samples, rate="")
    assert verdict("`sparcml` over best, N = 8", rows_8=looped)[1:] == ["", "not measured"]
    assert verdict("bytes of best over B2, N = 8", rows_8=looped)[1:] == ["1.000", "met"]
    assert figures({"rows-8": looped}) == {}


def test_the_page_shows_a_point():
    page = with_results(f"before\n{BEGIN}\nstale\n{END}\nafter\n", {"rows-8": ROWS}, ["scale.svg"])
    assert page.startswith(f"before\n{BEGIN}\n") and page.endswith(f"{END}\nafter\n") and "stale" not in page
    assert page == with_results(page, {"rows-8": ROWS}, ["scale.svg"])
    best = "| **`holders`** | 0.001 | 0.001 | 1.10 | 0.001 | 1.22 | 2000.0 | 1500.0-3000.0 | 4.00 | 1.00 | 1.00-1.00 |"
    assert best in page and "| over `holders` |" in page
    assert "3 rounds in 61 s, in which others used 0.4 % of the cores; commit" in page
    assert "```\npython -m benchmarks.lab for rows-8\n```" in page and "2 cores of Some CPU" in page
    assert "![Rows at 2 %: bytes and times by the number of ranks](../../docs/benchmarks/scale.svg)" in page
    with pytest.raises(ValueError, match="no part between"):
        with_results("a page", {}, [])


def test_training_has_losses_and_no_bounds():
    steps = replace(result("training-8", {"holders": [1.0, 2.0], "ddp-sparse": [2.0, 3.0]}), bounds=None, apart=2.5e-6)
    shown = section(BY_NAME["training-8"], {"training-8": steps})
    assert "| ms | quartiles | over `holders` |" in shown and "losses differ by 2.5e-06 at most" in shown
    assert "bound" not in shown and "/ B" not in shown
    assert Result.from_json(json.loads(json.dumps(steps.to_json()))) == steps
    assert "training-8" in figures({"training-8": steps})["ratios.svg"]


def test_figures_are_the_same_every_time():
    times = {**ROWS.samples, RANGE: [4.0, 8.0, 12.0], "torch-dense": [80.0]}
    measured = {"rows-2": replace(ROWS, point="rows-2"), "rows-8": ROWS, "library-8": result("library-8", times)}
    drawn = figures(measured)
    assert list(drawn) == ["scale.svg", "ratios.svg", "library.svg"] and drawn == figures(measured)
    for svg in drawn.values():
        texts = {node.text for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")}
        assert {"holders", "torch-coo"} <= texts and "date" not in svg
    assert "range" in drawn["library.svg"] and "rows-2" in drawn["ratios.svg"]
    assert figures({}) == {}


def test_a_point_that_fails_does_not_lose_the_others(tmp_path, monkeypatch, capsys):
    def measured(point: Point, more: list[str]) -> Result:
        if point.name == "rows-4":
            raise LabError("rows-4 ended with 1")
        return replace(ROWS, point=point.name, others=0.5 if point.name == "rows-8" else 0.0)

    monkeypatch.setattr(run, "measured", measured)
    points = [
        *(BY_NAME[name] for name in ("rows-2", "rows-4", "rows-8")),
        replace(BY_NAME["rows-16"], package="no_such_package"),
    ]
    assert run.measure(points, tmp_path, []) == ["rows-4"]
    assert sorted(load(tmp_path, POINTS)) == ["rows-2", "rows-8"]
    said = capsys.readouterr().err
    assert "suite: 2 of 4, rows-4" in said and "rows-4 ended with 1" in said
    assert "rows-16 is left out, since no_such_package is not installed" in said
    assert "others used 50% of the cores during rows-8" in said and "during rows-2" not in said


def test_the_list_has_every_point_and_what_it_takes():
    lines = run.listed(POINTS[:2], {"rows-2": ROWS}).splitlines()
    assert lines[0].split()[:3] == ["rows-2", "61", "s"] and lines[-1].split() == ["111", "s"]


def test_without_the_right_nothing_is_measured(monkeypatch):
    monkeypatch.setattr("benchmarks.lab.network.namespaces.shutil.which", lambda name, path: None)
    monkeypatch.setattr(sys, "argv", ["suite", "--only", "rows-2"])
    with pytest.raises(SystemExit, match="suite: a shaped network takes the program ip"):
        run.carry_out(suite.SUITE)
    monkeypatch.setattr(sys, "argv", ["suite", "--lab", "--rounds 2"])
    with pytest.raises(SystemExit, match="give it a folder with --to"):
        run.carry_out(suite.SUITE)


def over_loopback(folder: Path, names: list[str], words: str) -> dict[str, Result]:
    """What the suite measures among two ranks, for each takes seconds to start."""
    command = [sys.executable, "-m", "benchmarks.lab.suite", "--to", str(folder), "--only", *names]
    words = f"--network loopback --ranks 2 --rounds 2 {words}"
    done = subprocess.run([*command, "--lab", words], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return load(folder, POINTS)


@pytest.mark.slow
def test_a_point_over_loopback(tmp_path):
    (found,) = over_loopback(tmp_path, ["rows-2"], "--units 2000").values()
    assert (tmp_path / "rows-2.json").stat().st_size < 10_000
    assert found.command == f"{BY_NAME['rows-2'].command} --network loopback --ranks 2 --rounds 2 --units 2000"
    assert set(found.samples) == {*SCHEMES, "torch-coo"} and {len(times) for times in found.samples.values()} == {2}
    assert found.machine["commit"] and found.machine["compiler"].startswith("g++ ") and 0 <= found.others < 1
    page = with_results(f"{BEGIN}{END}", {"rows-2": found}, [])
    assert "2 ranks, loopback; rows: 2,000 x 64" in page and page.count("Not measured.") == len(POINTS) - 1


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
