"""Pages have the tables and figures that programs make of result files, and say what the files say."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import (
    averaging,
    bounds,
    calls,
    clusters,
    fast_networks,
    gpu_page,
    holders,
    one_machine,
    papers,
    predicted_steps,
    publish,
    step_profile,
)
from benchmarks.bigram import __main__ as bigram
from benchmarks.bigram.model import WRITTEN, ZENC_ON_DEMAND
from benchmarks.convergence import curves
from benchmarks.convergence.runs import EXPERIMENTS, RUNS
from benchmarks.lab import choice
from benchmarks.lab.dense import suite as dense
from benchmarks.lab.results import spread
from benchmarks.lab.steps import suite as steps
from benchmarks.lab.suite import __main__ as suite
from benchmarks.lab.suite.figures import figures
from benchmarks.lab.suite.page import with_results as suite_page
from benchmarks.lab.suite.points import POINTS
from benchmarks.lab.suite.results import load
from benchmarks.pages import ROOT, Part
from benchmarks.reproduce import __main__ as reproduce
from benchmarks.reproduce.page import figures as reproduced
from benchmarks.reproduce.page import part as reproduce_part
from benchmarks.slow_links import page as slow_links
from benchmarks.strategies import __main__ as strategies
from benchmarks.strategies.page import part as strategies_part
from benchmarks.strategies.traces import published


def kept(name: str) -> Any:
    """Return what the last run has written to ``benchmarks/results``, or another file in the repository."""
    path = ROOT / "benchmarks" / "results" / f"{name}.json" if "/" not in name else ROOT / name
    return json.loads(path.read_text("utf-8"))


PARTS = (
    (averaging.PART, lambda: averaging.shown(averaging.PART.kept())),
    (bounds.PART, lambda: bounds.bounds_table(bounds.PART.kept())),
    (bigram.PART, lambda: bigram.page_of(bigram.PART.kept()["points"])),
    (calls.PART, lambda: calls.shown(calls.PART.kept())),
    (calls.STEPS, lambda: calls.steps_shown(calls.STEPS.kept())),
    (clusters.PART, lambda: clusters.shown(clusters.PART.kept()["rows"])),
    (fast_networks.PART, lambda: fast_networks.shown(fast_networks.PART.kept())),
    (gpu_page.PART, gpu_page.tables),
    (holders.DIRECTORY, lambda: holders.directory_tables(holders.kept())),
    (holders.TIERS, lambda: holders.tiers_table(holders.kept())),
    (one_machine.PART, lambda: one_machine.shown(one_machine.PART.kept())),
    (papers.PART, papers.shown),
    (predicted_steps.PART, lambda: predicted_steps.told(list(predicted_steps.compared()))),
    (publish.PART, lambda: publish.shown(publish.PART.kept())),
    (reproduce.PART, lambda: reproduce_part(reproduce.PART.kept())),
    (slow_links.PART, lambda: slow_links.page_of(slow_links.PART.kept())),
    (slow_links.GUIDE, lambda: slow_links.verdicts(slow_links.PART.kept())),
    (step_profile.PART, step_profile.shown),
    (strategies.PART, lambda: strategies_part(strategies.PART.kept())),
)
"""Parts of pages, and what programs make of the results of their last run."""
REWRITTEN = {
    suite.PAGE: lambda page: suite_page(page, load(suite.FOLDER, POINTS), figures(load(suite.FOLDER, POINTS))),
    choice.PAGE: lambda page: choice.with_table(page, load(choice.FOLDER, choice.POINTS)),
    dense.PAGE: lambda page: dense.with_tables(page, load(dense.FOLDER, dense.ALL)),
    steps.PAGE: lambda page: steps.with_tables(page, load(steps.FOLDER, steps.POINTS)),
    curves.PAGE: curves.written,
}
"""Page -> the text that its command makes of it."""


@pytest.mark.parametrize(("part", "text"), PARTS, ids=lambda of: of.begin.split()[1] if isinstance(of, Part) else "")
def test_the_part_is_what_the_program_writes(part: Part, text: Callable[[], str]) -> None:
    page = part.page.read_text("utf-8")
    assert page == part.written(page, text())


@pytest.mark.parametrize(("path", "rewritten"), REWRITTEN.items(), ids=lambda of: getattr(of, "stem", ""))
def test_the_command_would_change_nothing(
    path: Any, rewritten: Callable[[str], str], assert_golden: Callable[[str, str], None]
) -> None:
    assert_golden(f"../../{path.relative_to(ROOT)}", rewritten(path.read_text("utf-8")))


def test_figures_are_those_of_the_files(assert_plot: Callable[[str, str], None]) -> None:
    found = load(suite.FOLDER, POINTS)
    drawn = {f"benchmarks/{name}": svg for name, svg in figures(found).items()}
    assert {path.name for path in suite.FOLDER.glob("*.svg")} == {name.partition("/")[2] for name in drawn}
    drawn |= {f"reproduction/{name}": svg for name, svg in reproduced(reproduce.PART.kept()).items()}
    trained = curves.load(RUNS)
    for each in EXPERIMENTS:
        drawn[f"benchmarks/convergence/{each.name}.svg"] = curves.figure(each, trained)
    for hosts in slow_links.HOSTS:
        drawn[f"benchmarks/slow_links/{hosts}.svg"] = slow_links.figure(slow_links.PART.kept(), hosts)
    for name, svg in drawn.items():
        assert_plot(name, svg)
    scales = [{**each.about, "commit": ""} for each in trained.values()]
    assert all(each == scales[0] for each in scales), "all runs are of one scale"


@pytest.mark.parametrize(("folder", "points"), [(suite.FOLDER, POINTS), (choice.FOLDER, choice.POINTS)])
def test_committed_results_are_those_of_the_points_as_they_are(folder: Any, points: Any) -> None:
    found, commands = load(folder, points), {point.name: point.command for point in points}
    assert {path.stem for path in folder.glob("*.json")} == set(found)
    for name, of in found.items():
        assert of.point == name and of.command == commands[name], f"measure {name} again"
        assert of.settings.rate and (folder / f"{name}.json").stat().st_size < 10_000
        for peer, row in of.rows.items():
            assert spread(of.samples[peer]).median == pytest.approx(row.seconds.median, rel=1e-4)
            assert of.over(peer, of.settings.reference).median == pytest.approx(row.ratio.median, rel=1e-3)


def test_files_hold_what_pages_promise() -> None:
    """Pages claim reached targets and the best variant only where the files show them."""
    of = {(row["way"], row["scheme"], row["task"]): row for row in kept("calls")["rows"]}
    assert (
        of["connections", "balanced", "rows"]["processor"] <= 3
        and of["connections", "holders", "rows"]["processor"] <= 6
    )
    for run in kept("table_steps")["runs"]:
        ms = {(row["scheme"], row["task"]): row["ms"] for row in run["rows"]}
        least = 1.2 if run["model"] in ("10", "26") else 0.85
        assert all(ms[name, "a call each"] / ms[name, "joined"] >= least for name in calls.SCHEMES)
    assert min(each["pairs_over_ours"] for each in kept("publish")["rows"] if each["dtype"] == "bfloat16") > 4
    for point in kept("bigram")["points"]:
        saved = bigram.sent_of(point["lanes"][WRITTEN]) / bigram.sent_of(point["lanes"][ZENC_ON_DEMAND])
        assert saved > (1.3 if point["settings"]["ranks"] == 8 else 1.2)
        assert all(lane["apart"] == 0 for lane in point["lanes"].values())
    for point in holders.kept()["tiers"]:
        for kind in ("seconds", "carried"):
            assert min(point[kind], key=point[kind].get) == "holders_across", point
    for point in holders.kept()["scale"]:
        assert (point["holders"] < point["gathering"]) == (point["ranks"] > 16)
        assert 1 <= point["holders_over_bound"] < 1.02 or point["ranks"] > 1024
    assert kept("docs/strategies.json")["published"] == published()
    missed = [slow_links.verdicts(kept("slow_links"), hosts).count("is missed") for hosts in slow_links.HOSTS]
    assert missed == [0, 0]
