"""Bytes of the schemes that the suite compares: loopback counts equal predictions."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.lab.settings import Workload
from benchmarks.lab.suite.points import RANGE, SCHEMES
from zenc.api import explain

ROOT = Path(__file__).resolve().parents[2]
SEED = 1
LOADS = [Workload("rows", 2000, 16, 0.05, 1.05), Workload("elements", 20_000, 1, 0.01, 0.0)]
NAMES = [*SCHEMES, str(ROOT / RANGE)]


def predicted(name: str, size: int, load: Workload) -> tuple[int, int]:
    """Return the most bytes that a rank sends, and the most that a rank receives, as ``zenc explain`` has them."""
    shape = {"density": load.density, "units": load.units, "width": load.width, "zipf": load.zipf or None, "seed": SEED}
    total = explain(name, size, **shape).to_json()["bytes"]["total"]
    return total["most_sent"], total["most_received"]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_bytes_are_those_predicted(nine, size):
    calls = nine.run("tests.benchmarks.jobs:bytes_of_calls", size, schemes=NAMES, loads=LOADS, seed=SEED)
    for name in NAMES:
        for load in LOADS:
            counted = tuple(max(way) for way in zip(*(rank[name, load.kind] for rank in calls), strict=True))
            assert counted == predicted(name, size, load), (name, load.kind)
