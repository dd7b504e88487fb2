"""``benchmarks/lab/choice``: its points, and the table that is made of what was measured."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.lab import choice
from benchmarks.lab.__main__ import parser
from benchmarks.lab.bounds import Bounds
from benchmarks.lab.results import Row, spread
from benchmarks.lab.settings import Settings
from benchmarks.lab.suite.results import Result, load, run_of
from benchmarks.lab.workloads import KINDS
from benchmarks.markdown import BEGIN, END
from zenc.language.files import load_file, locate
from zenc.scheme.model import Choice
from zenc.scheme.resolve import resolve_any

COMMITTED = load(choice.FOLDER, choice.POINTS)


def result(name: str, times: dict[str, list[float]], sent: dict[str, int]) -> Result:
    settings = Settings(8, "100mbit", 70_000, "2mb", KINDS["rows"], tuple(times), "auto", 3, 3, 2, 1)
    rows = {
        peer: Row(len(of_peer), spread(of_peer), spread([1.0]), sent[peer], sent[peer], 1100, 1100, 0.9, 0.1)
        for peer, of_peer in times.items()
    }
    return Result(name, "", "", run_of(settings.to_json()), {}, Bounds(900, 1000, 0.5), rows, times, 60.0, 0.0)


FOUND = result(
    "rows-8",
    {"auto": [1.0, 2.0, 4.4], "balanced": [0.9, 3.0, 5.0], "holders": [1.0, 2.0, 4.0]},
    {"auto": 700, "balanced": 800, "holders": 700},
)


def test_the_table_is_made_of_the_results(assert_golden):
    assert_golden("../../docs/guides/choice.md", choice.with_table(choice.PAGE.read_text(encoding="utf-8"), COMMITTED))


def test_committed_results_are_those_of_the_points_as_they_are():
    commands = {point.name: point.command for point in choice.POINTS}
    assert {path.stem for path in choice.FOLDER.glob("*.json")} == set(COMMITTED)
    for name, found in COMMITTED.items():
        assert found.command == commands[name], f"measure {name} again"
        assert found.settings.rate and (choice.FOLDER / f"{name}.json").stat().st_size < 10_000


def test_points_compare_auto_with_all_its_candidates():
    chosen, _ = resolve_any(load_file(locate("auto")))
    assert isinstance(chosen, Choice)
    candidates = {candidate.name for candidate in chosen.candidates}
    assert len(choice.POINTS) == len({point.name for point in choice.POINTS}) == len(choice.WORKLOADS) * 4
    for point in choice.POINTS:
        options = parser().parse_args(point.words)
        compared = {choice.AUTO, *candidates} - (set() if point.name.startswith("full") else {choice.DENSE})
        assert {*options.schemes} == compared and options.peers == [] and options.network == "shaped"
        assert point.seconds < 360


def test_what_auto_runs_is_told_by_its_bytes():
    assert choice.chosen(FOUND) == choice.best(FOUND) == "holders" and choice.within(FOUND)
    other = replace(FOUND, rows={**FOUND.rows, "auto": replace(FOUND.rows["auto"], counted_sent=1)})
    assert choice.chosen(other) == "none here"


def test_a_row_of_the_table():
    page = choice.with_table(f"{BEGIN}{END}", {"rows-8": FOUND})
    assert "| rows at 2 %, 8 ranks | `holders` | 2000.0 | 2000.0 | `holders` | 1.000 | 1.000-1.050 |" in page
    assert "| rows at 2 %, 4 ranks | not measured |  |  |  |  |  |" in page
    assert f"Of {len(choice.POINTS)} points 1 are measured; at 1 of them `auto` is within 5 % of the best." in page


def test_what_is_far_off_is_not_within():
    slow = {**FOUND.samples, "auto": [1.2, 2.2, 4.8]}
    assert not choice.within(replace(FOUND, samples=slow))
