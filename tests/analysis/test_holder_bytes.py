"""Expected bytes of random gradients by holders are close to the counted bytes of drawn ones."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest

from tests.plan.test_announce import holders
from tests.support.holder_bytes import weigh_by_holders
from tests.support.plans import plan_of
from zenc.analysis.exact_traffic import weigh
from zenc.analysis.expected_bytes import ExpectedBytes
from zenc.analysis.volume import volumes
from zenc.gradients.index_sets import gradients
from zenc.gradients.profile_generators import uniform
from zenc.plan.unroll import expand
from zenc.simulator.contributor_counts import play
from zenc.simulator.symmetry import messages
from zenc.verify.proof import verify

UNITS, UNIT_BYTES = 50_000, 64


@pytest.mark.parametrize("density", [0.01, 0.2, 0.9])
@pytest.mark.parametrize("size", [2, 5, 8])
@pytest.mark.parametrize("communication", ["point_to_point", "ring", "hierarchy"])
@pytest.mark.parametrize("aggregation, announce", [("incremental", ""), ("one_shot", ""), ("one_shot", "directory")])
def test_expected_bytes(communication, aggregation, announce, size, density):
    plan, rng = holders(communication, aggregation, announce and f"announce: {announce}"), np.random.default_rng(size)
    model = ExpectedBytes(plan, size, uniform(density, UNITS, UNIT_BYTES // 4))
    expected: dict[str, float] = defaultdict(float)

    def observe(phase, number, moved):
        pairs, message = np.unique(moved.src * size + moved.dst, return_inverse=True)
        expected[phase.name] += model.delivered(phase, moved, message.reshape(-1), len(pairs)).sum()

    verify(plan, size, observe)
    held = [np.flatnonzero(rng.random(UNITS) < density) for _ in range(size)]
    counted: dict[str, float] = defaultdict(float)
    for round_ in weigh_by_holders(plan, UNITS, UNIT_BYTES, held):
        counted[round_.kind] += int(round_.bytes.sum())
    assert set(counted) == {"announce", "push", "pull", *([announce] if announce else [])}
    noise = 0.005 * sum(counted.values())  # few units are held twice where gradients are sparse
    for kind in counted:
        assert expected[kind] == pytest.approx(counted[kind], rel=0.05, abs=noise), kind


OWN = "scheme own { communication: point_to_point aggregation: incremental partition: parallelism balance: balanced by"
TIERS = [
    "tier a(2): balanced tier b: own",
    "tier a(4): dense_ring tier b: own",
    "tier a(2): hierarchical_centralization tier b: own",
    "tier a(2): balanced tier b(2): dense_ring tier c: own",
]


@pytest.mark.parametrize("density", [0.01, 0.2])
@pytest.mark.parametrize("announce", ["point_to_point", "directory(from = 2)"])
@pytest.mark.parametrize("tiers", TIERS)
def test_bytes_of_an_outermost_tier(tiers, announce, density):
    size, plan = 8, plan_of(f"{OWN} holders announce: {announce} }} scheme two {{ {tiers} }}", scheme="two")
    model, expected = ExpectedBytes(plan, size, uniform(density, UNITS, 16)), defaultdict[str, float](float)

    def observe(phase, number, moved):
        pairs, message = np.unique(moved.src * size + moved.dst, return_inverse=True)
        expected[phase.name] += model.delivered(phase, moved, message.reshape(-1), len(pairs)).sum()

    verify(plan, size, observe)
    simulated = defaultdict[str, float](float)
    for step in play(plan, size):
        for _, _, each in messages(model, step):
            simulated[step.phase.name] += each.sum()
    assert simulated == pytest.approx(expected, rel=1e-6)
    rng = np.random.default_rng(1)
    held = [np.flatnonzero(rng.random(UNITS) < density) for _ in range(size)]
    counted = defaultdict[str, float](float)
    for each in weigh(plan, expand(plan, size), gradients(UNITS, 16, "f32", held)).messages:
        counted[each.phase] += each.bytes.sum()
    noise = 0.005 * sum(counted.values())
    assert dict(expected) == {name: pytest.approx(bytes, rel=0.05, abs=noise) for name, bytes in counted.items()}


def test_volumes_of_an_outermost_tier():
    """A half of a machine pushes d_2 less the part of it that the machine owns."""
    plan = plan_of(f"{OWN} holders }} scheme two {{ {TIERS[0]} }}", scheme="two")
    for n in (4, 6, 8):
        push, pull = (volumes(plan, n, 0.1)[f"{kind} of b"].sent for kind in ("push", "pull"))
        assert push == {2: Fraction(1, 2), n: Fraction(-1, n)} and pull == {n: Fraction(n - 2, 2 * n)}
    whole = plan_of(f"{OWN} holders }} scheme two {{ {TIERS[2]} }}", scheme="two")
    assert volumes(whole, 8, 0.1)["push of b"].sent == {2: Fraction(1), 8: Fraction(-1, 4)}, "each rank has all of it"


@pytest.mark.parametrize("size", [2, 4, 7])
def test_the_volume_of_the_push(size):
    """A rank pushes d - d_n / n of the tensor, and pulls all that it does not own."""
    found = volumes(holders("point_to_point then ring"), size, 0.1)
    assert found["push"].sent == found["push"].received == {1: Fraction(1), size: Fraction(-1, size)}
    assert found["pull"].sent == {size: Fraction(size - 1, size)}
