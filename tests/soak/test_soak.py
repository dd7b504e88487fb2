"""The soak: a few rounds with real processes, and the rule by which resources are flat."""

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from multiprocessing import Pipe
from typing import Any

import pytest

from tests.soak.__main__ import REPORT, in_words, is_good, report_of
from tests.soak.processes import SoakedProcesses
from tests.soak.resources import Trend, trend, usage
from tests.soak.rounds import KINDS, LASTING, MORTAL, round_of
from tests.soak.soaking import Soak, SoakFindings

SEED = 1


def first(kind: str) -> int:
    return next(n for n in range(1000) if (m := round_of(SEED, n).mishap) and m.kind == kind)


@pytest.fixture(scope="module")
def processes() -> Iterator[SoakedProcesses]:
    with SoakedProcesses() as made:
        yield made


@pytest.mark.parametrize("kind", ["pauses", "kills", "cuts"])
def test_a_round_with_a_mishap_ends(processes: SoakedProcesses, kind: str) -> None:
    found = Soak(processes).run(SEED, range(first(kind), first(kind) + 1), 60.0)
    assert found.failures == []
    assert found.rounds == found.planned[kind] == 1 and sum(found.outcomes.values()) > 0


def test_after_mishaps_a_round_without_sums_on_all(processes: SoakedProcesses) -> None:
    number = next(n for n in range(1000) if round_of(SEED, n).mishap is None)
    of = round_of(SEED, number)
    found = Soak(processes).run(SEED, range(number, number + 1), 60.0)
    assert found.failures == [] and found.outcomes == {"sum": len(of.summands) * len(of.members)}


class Silent:
    """Processes that take orders and never answer."""

    def __init__(self) -> None:
        self.ends = {slot: Pipe() for slot in LASTING + MORTAL}
        self.pipes = {slot: here for slot, (here, _) in self.ends.items()}
        self.signals: list[int] = []

    def signal(self, slot: int, number: int) -> None:
        self.signals.append(slot)


def test_nothing_reduced_is_a_failure() -> None:
    silent: Any = Silent()
    found = Soak(silent, quiet=0.2).run(SEED, range(1), 60.0)
    assert len(found.failures) == 1 and "nothing was reduced for" in found.failures[0]
    assert set(silent.signals) == set(round_of(SEED, 0).members), "they show where they are"
    assert not is_good(report_of(found, SEED, 1.0))


def test_a_leak_and_a_run_without_mishaps_are_found() -> None:
    of = {"own_mb": 300.0, "files": 20.0}
    found = SoakFindings(rounds=500, mishaps=Counter({kind: 9 for kind in KINDS}))
    found.usage = {0: [(float(k), of) for k in range(40)]}
    assert is_good(report_of(found, SEED, 40.0))
    found.usage[1] = [(float(k), {**of, "own_mb": 300.0 + k}) for k in range(40)]
    leaks = report_of(found, SEED, 40.0)
    assert not is_good(leaks) and leaks["rising"] == ["own_mb of process 1 rose by 29.0 (7.8 sigma) from about 324.5"]
    del found.usage[1], found.mishaps["kills"]
    idle = report_of(found, SEED, 40.0)
    assert not is_good(idle) and idle["missing"] == ["of 500 rounds none had kills"]


def test_a_seed_has_all_mishaps_and_only_mortals_die() -> None:
    rounds = [round_of(SEED, number) for number in range(300)]
    assert rounds == [round_of(SEED, number) for number in range(300)]
    assert set(Counter(of.mishap.kind for of in rounds if of.mishap)) == set(KINDS) - {"none"}
    killed = {of.members[of.mishap.member] for of in rounds if of.mishap and of.mishap.kind == "kills"}
    assert killed <= set(MORTAL) and not killed & set(LASTING)


def test_noise_is_flat_and_a_leak_in_it_is_not() -> None:
    chance = random.Random(3)
    times = [float(k) for k in range(60)]
    noise = [300 + chance.gauss(0, 5) for _ in times]
    filling = [value - 100 * 0.8**k for k, value in enumerate(noise)]
    leak = [value + k for k, value in enumerate(noise)]
    assert [trend(times, each).is_flat("own_mb") for each in (noise, filling, leak)] == [True, True, False]
    assert trend(times, [20 + k // 10 for k in range(60)]).is_flat("files") is False
    assert trend(times, [20 + k // 50 for k in range(60)]).is_flat("files"), "one more, once"
    assert trend([0.0, 1.0], [1.0, 2.0]) == Trend(1.5, 0.0, 0.0), "too few samples say nothing"


def test_open_files_and_memory_are_seen() -> None:
    before = usage()
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
    kept = bytearray(b"1") * (8 << 20)
    during = usage()
    assert during["files"] == before["files"] + 3
    assert abs(during["heap_mb"] - before["heap_mb"] - 8) < 1 and during["own_mb"] - before["own_mb"] > 6
    for each in opened:
        os.close(each)
    del kept
    assert abs(usage()["heap_mb"] - before["heap_mb"]) < 1


def test_the_page_says_what_the_soak_has_found() -> None:
    page = (REPORT.parents[3] / "docs" / "internals" / "liveness.md").read_text()
    report = json.loads(REPORT.read_text())
    assert is_good(report) and in_words(report) in " ".join(page.split())
