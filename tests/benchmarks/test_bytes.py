"""Bytes of the schemes that the suite compares: over loopback those that are predicted, and those that they were."""

from __future__ import annotations

from pathlib import Path

from benchmarks.lab.settings import Workload
from benchmarks.lab.show import label
from benchmarks.lab.suite.points import RANGE, SCHEMES
from tests.support.ranks import Ranks
from zenc.compiler import explain

ROOT = Path(__file__).resolve().parents[2]
SEED = 1
LOADS = [Workload("rows", 2000, 16, 0.05, 1.05), Workload("elements", 20_000, 1, 0.01, 0.0)]
NAMES = [*SCHEMES, str(ROOT / RANGE)]


def predicted(name: str, size: int, load: Workload) -> tuple[int, int]:
    """By ``zenc explain``: what the rank that sends most sends, and what the one that receives most receives."""
    shape = {"density": load.density, "units": load.units, "width": load.width, "zipf": load.zipf or None, "seed": SEED}
    total = explain(name, size, **shape).to_json()["bytes"]["total"]
    return total["most_sent"], total["most_received"]


def test_bytes_are_those_predicted_and_those_they_were(assert_golden):
    lines = ["scheme    load      ranks     sent received"]
    with Ranks(8) as ranks:
        for size in (2, 3, 4, 8):
            calls = ranks.run("tests.benchmarks.jobs:bytes_of_calls", size, schemes=NAMES, loads=LOADS, seed=SEED)
            for name in NAMES:
                for load in LOADS:
                    sent, received = (max(way) for way in zip(*(rank[name, load.kind] for rank in calls), strict=True))
                    assert (sent, received) == predicted(name, size, load), (name, size, load.kind)
                    lines.append(f"{label(name):9} {load.kind:9} {size:5} {sent:8} {received:8}")
    assert_golden("lab.bytes.txt", "\n".join([lines[0], *sorted(lines[1:])]))
