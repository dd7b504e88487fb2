"""Bytes that are expected of gradients at random by holders lie close to what is counted of some that were drawn."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest

from tests.plan.test_announce import holders
from tests.support.holder_bytes import weigh_by_holders
from zenc.analysis.expected_bytes import ExpectedBytes
from zenc.analysis.volume import volumes
from zenc.gradients.profile_generators import uniform
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


@pytest.mark.parametrize("size", [2, 4, 7])
def test_the_volume_of_the_push(size):
    """What a rank holds less what it owns: d - d_n / n of the tensor; and in the pull all that it does not own."""
    found = volumes(holders("point_to_point then ring"), size, 0.1)
    assert found["push"].sent == found["push"].received == {1: Fraction(1), size: Fraction(-1, size)}
    assert found["pull"].sent == {size: Fraction(size - 1, size)}
