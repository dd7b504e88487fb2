"""Theorem 1 of Zen (OSDI 2025, section 2.4) on the cost model, also for owners among holders.

Balanced Parallelism (BP) is point to point, incremental, parallel and balanced; Hierarchical Centralization (HC) is
hierarchy, incremental and centralized. Under the paper's assumptions (time is bytes over bandwidth, COO with indices as
wide as values, the same density everywhere, a power of two of ranks) one of them is the cheapest of all combinations
of the four dimensions. Which one follows from gamma: BP where the sum over i = 1 .. log2 n of gamma^(2^(i - 1)) is
above (n - 1) / n (gamma^n + 1).
"""

from __future__ import annotations

from functools import cache
from itertools import product
from math import log2

import pytest

from tests.simulator.plans import plan_of as shipped
from tests.support.plans import plan_of
from zenc.gradients.profile import Profile
from zenc.gradients.profile_generators import common_core, random_subset, zipf
from zenc.plan.ir import Plan
from zenc.simulator.calibration import bandwidth_only
from zenc.simulator.predict import predict

SLOW = pytest.mark.slow
PAPER = bandwidth_only("paper")
"""Cost model of the paper: time is bytes over bandwidth."""
CUTS = {
    "centralization": "partition: centralization",
    "balanced": "partition: parallelism balance: balanced by permutation",
    "imbalanced": "partition: parallelism balance: imbalanced",
}
ALL = tuple(product(("ring", "hierarchy", "point_to_point"), ("incremental", "one_shot"), CUTS))
BP, HC = ("point_to_point", "incremental", "balanced"), ("hierarchy", "incremental", "centralization")
MANY = 2_000_000_000
HEADERS = 1.001
"""Headers and padding, which the paper leaves out."""
INDICES = 1.002
"""Headers, padding, and the announcement of rows of WIDE, which the paper leaves out."""
ROWS = (2_000_000, 64)
WIDE = (2_000_000, 4096)
"""Width of rows beside which an index, and so the announcement, is negligible, as in the paper."""
CROSSOVERS = {4: 0.2744, 8: 0.0580, 16: 0.01308, 32: 0.003097}
"""Ranks -> the overlap of random subsets from which on BP is cheaper by Theorem 1; two ranks have none."""


@cache
def combination(communication: str, aggregation: str, cut: str) -> Plan:
    dimensions = f"communication: {communication} aggregation: {aggregation} {CUTS[cut]}"
    return plan_of(f"scheme s {{ {dimensions} push: coo pull: coo }}", None)


def seconds(plan: Plan, size: int, of: Profile) -> float:
    return predict(plan, size, of, None, PAPER).seconds


def every(size: int, of: Profile) -> dict[tuple[str, str, str], float]:
    return {each: seconds(combination(*each), size, of) for each in ALL}


def elements(overlap: float, density: float = 0.002) -> Profile:
    return random_subset(density, overlap, MANY)


def test_there_are_18_combinations() -> None:
    assert len(ALL) == 18 and BP in ALL and HC in ALL


@pytest.mark.parametrize("size", [2, 4, 8, 16, 32])
@pytest.mark.parametrize(
    ("density", "overlap"),
    [
        *((0.0005, 0.02), (0.01, 0.1), (0.0005, 0.5), (0.01, 1.0)),
        *(pytest.param(*other, marks=SLOW) for other in ((0.01, 0.02), (0.0005, 0.1), (0.01, 0.5), (0.0005, 1.0))),
    ],
)
def test_the_cheapest_of_all_is_one_of_the_two(size: int, density: float, overlap: float) -> None:
    found = every(size, elements(overlap, density))
    assert min(found[BP], found[HC]) <= min(found.values()) * HEADERS


@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("core", [0.1, 0.6])
def test_so_it_is_where_ranks_share_a_core(size: int, core: float) -> None:
    found = every(size, common_core(0.002, core, MANY))
    assert min(found[BP], found[HC]) <= min(found.values()) * HEADERS


@pytest.mark.parametrize("size", [4, 16])
def test_so_it_is_for_a_gradient_that_is_skewed(size: int) -> None:
    """Balance matters for a skewed gradient: ranges cost several times as much."""
    found = every(size, zipf(0.01, 1.05, 2_000_000))
    assert min(found[BP], found[HC]) <= min(found.values()) * HEADERS
    assert found["point_to_point", "incremental", "imbalanced"] > 1.5 * found[BP]


@pytest.mark.parametrize(("size", "overlap"), CROSSOVERS.items())
def test_they_cross_over_where_the_formulas_say(size: int, overlap: float) -> None:
    for factor, cheapest, other in ((0.95, HC, BP), (1.05, BP, HC)):
        of = elements(overlap * factor)
        assert seconds(combination(*cheapest), size, of) < seconds(combination(*other), size, of)


@pytest.mark.parametrize("overlap", [0.01, 0.3, 0.9])
def test_two_ranks_exchange_all_they_have(overlap: float) -> None:
    of = elements(overlap)
    assert seconds(combination(*HC), 2, of) <= seconds(combination(*BP), 2, of) * HEADERS


@pytest.mark.parametrize("size", [2, 4, 8, 16])
@pytest.mark.parametrize("overlap", [0.02, 0.1, 0.3, 0.6])
def test_rows_among_their_holders_are_never_beaten(size: int, overlap: float) -> None:
    """No combination beats them; half of the units of a rank shared with another one is much for rows."""
    of = random_subset(0.002, overlap, *ROWS)
    assert seconds(shipped("holders", size), size, of) <= min(every(size, of).values()) * HEADERS


@pytest.mark.one_in(4)
@pytest.mark.parametrize("size", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("overlap", [0.02, 0.1, 0.3, 0.6, 0.9, 1.0])
def test_where_indices_weigh_nothing_holders_are_never_beaten(size: int, overlap: float) -> None:
    """No combination beats them on the whole grid: they lose for narrower rows by the announcement alone."""
    of = random_subset(0.002, overlap, *WIDE)
    assert seconds(shipped("holders", size), size, of) <= min(every(size, of).values()) * INDICES


@pytest.mark.parametrize("size", [8, 16, 32])
@pytest.mark.parametrize("overlap", [0.3, 0.9, 1.0])
def test_what_beats_holders_is_their_announce_alone(size: int, overlap: float) -> None:
    """The announcement grows with the ranks, while its gain vanishes where all of them hold the same units."""
    of = random_subset(0.002, overlap, *ROWS)
    found = predict(shipped("holders", size), size, of, None, PAPER)
    best = min(every(size, of).values())
    assert found.seconds - found.phases["announce"].seconds <= best
    assert found.seconds <= 1.08 * best


@pytest.mark.parametrize("size", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("overlap", [0.05, 0.4, 1.0])
def test_both_take_what_the_equations_say(size: int, overlap: float) -> None:
    of = elements(overlap)
    entries = 2 * 4 * of.units * of.density / PAPER.bandwidth
    gamma = of.densification
    bp = (size - 1) / size * (float(gamma(size)) + 1) * entries
    hc = sum(float(gamma(1 << i)) for i in range(int(log2(size)))) * entries
    assert seconds(combination(*BP), size, of) == pytest.approx(bp, rel=HEADERS - 1)
    assert seconds(combination(*HC), size, of) == pytest.approx(hc, rel=HEADERS - 1)
