"""The run time in the simulator: thousands of runs with faults, each from a seed, break no promise."""

from __future__ import annotations

import json
from pathlib import Path

from tests.faults.hunt import findings_of, hunt, report_of
from tests.faults.play import play
from tests.faults.scenario import scenario_of

SEEDS = 300
ROOT = Path(__file__).resolve().parents[2]


def test_seeds_break_no_promise() -> None:
    """``python -m tests.faults --replay SEED`` plays a seed that fails again."""
    found = hunt(range(SEEDS))
    assert found.broken == {}
    assert found.seeds == SEEDS
    assert set(found.faults) == {"kills", "vanishes", "freezes", "stalls", "cuts", "slows", "raises"}
    assert set(found.changes) == {"swaps", "skips", "reshapes", "averages", "another"}
    assert min(found.calls[outcome] for outcome in ("sum", "deadline", "peer-lost", "different-calls")) > SEEDS / 10
    assert found.objects < SEEDS, "what a run has made goes when it is over"


def test_a_seed_plays_the_same_again() -> None:
    for seed in range(40, 60):
        one, other = play(scenario_of(seed)), play(scenario_of(seed))
        assert (one.digest, one.switches, one.seconds) == (other.digest, other.switches, other.seconds)
        assert [str(record) for record in one.records] == [str(record) for record in other.records]


def test_a_run_goes_on_from_its_report() -> None:
    whole, first = hunt(range(30)), hunt(range(12))
    both = hunt(range(12, 30), found=findings_of(report_of(first, 0)))
    measured = {"processor_seconds": 0, "simulated_hours": 0}
    assert report_of(both, 0) | measured == report_of(whole, 0) | measured


def test_the_page_says_what_the_long_run_has_found() -> None:
    report = json.loads((ROOT / "tests" / "golden" / "faults" / "seeds.json").read_text())
    page = (ROOT / "docs" / "internals" / "liveness.md").read_text()
    assert report["broken"] == {} and report["first"] == 0
    assert f"of the {report['seeds']:,} in `seeds.json` none broke one" in page
