"""Computing of ranks: one kernel at a time, against what the scheme says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.simulator.plans import SHIPPED, plan_of
from zenc.analysis.expected_bytes import ExpectedBytes
from zenc.gradients.profile import Profile
from zenc.gradients.profile_generators import uniform, zipf
from zenc.simulator.calibration import KERNELS, bandwidth_only, linear_kernel
from zenc.simulator.compute_model import computing
from zenc.simulator.predict import Prediction, network, predict
from zenc.simulator.symmetry import program

UNITS, DENSITY = 4_000_000, 0.01
SPARSE = uniform(DENSITY, UNITS)
OWN = UNITS * DENSITY
BYTE, UNIT, SLOT = linear_kernel(0.0, 1.0), linear_kernel(1.0), linear_kernel(0.0, slot=1.0)


def predicted(scheme: str, size: int, of: Profile = SPARSE, **kernels: Any) -> Prediction:
    """Predict with ``kernels`` alone, all others taking nothing."""
    return predict(plan_of(scheme, size), size, of, None, replace(bandwidth_only("kernels"), **kernels))


def held(ranks: int) -> float:
    return UNITS * float(SPARSE.union(ranks))


def test_a_gradient_is_packed_and_the_sum_expanded_once() -> None:
    for scheme, kernel in (("balanced", "expand"), ("agsparse", "list"), ("holders", "join")):
        assert predicted(scheme, 4, **{kernel: UNIT}).kernels == pytest.approx(held(4))
        assert predicted(scheme, 4, **{kernel: BYTE}).kernels == pytest.approx(4 * held(4))
    assert predicted("balanced", 4, pack=UNIT).kernels == pytest.approx(OWN)
    assert predicted("balanced", 4, pack=SLOT).kernels == pytest.approx(UNITS)


def test_one_index_is_written_for_all_copies_and_each_that_comes_is_read() -> None:
    assert predicted("agsparse", 8, index=UNIT).kernels == pytest.approx((1 + 7) * OWN, rel=2e-3)
    assert predicted("agsparse", 8, index=SLOT).kernels == pytest.approx((1 + 7) * UNITS)
    steps = sum(held(ranks) for ranks in (1, 2, 4))
    assert predicted("sparcml", 8, index=UNIT).kernels == pytest.approx(2 * steps, rel=2e-3)
    assert predicted("sparcml", 8, index=SLOT).kernels == pytest.approx(2 * 3 * UNITS)


def test_bitmaps_take_nothing_for_a_unit() -> None:
    """The pull of balanced has no cost a unit; the parts of the push remain, one index each way for each peer."""
    assert predicted("balanced", 8, index=UNIT).kernels == pytest.approx(2 * 7 / 8 * OWN, rel=0.01)
    assert predicted("balanced", 8, index=SLOT).kernels == pytest.approx((7 + 7 + 1 + 7) * UNITS / 8)


def test_what_is_held_is_merged_with_what_comes() -> None:
    assert predicted("balanced", 8, merge=UNIT).kernels == pytest.approx(OWN, rel=0.01)
    assert predicted("balanced", 8, merge=SLOT).kernels == pytest.approx(UNITS)
    assert predicted("sparcml", 8, merge=UNIT).kernels == pytest.approx(2 * sum(map(held, (1, 2, 4))), rel=2e-3)
    assert predicted("agsparse", 8, merge=UNIT).kernels == pytest.approx(8 * OWN, rel=2e-3)


def test_by_holders_all_ranks_choose_owners_from_all_sets() -> None:
    assert predicted("holders", 8, owners=UNIT).kernels == pytest.approx(8 * OWN)
    assert predicted("holders", 8, owners=SLOT).kernels == pytest.approx(8 * UNITS)
    assert predicted("holders", 8, index=UNIT).kernels == pytest.approx(8 * OWN, rel=2e-3)
    assert predicted("holders", 8, merge=UNIT).kernels == pytest.approx(OWN, rel=0.05)
    assert predicted("balanced", 8, owners=UNIT, shares=UNIT).kernels < 1e-200


def test_by_holders_much_is_done_while_messages_flow() -> None:
    without = predicted("holders", 8)
    quick, kernel = linear_kernel(1e-12), linear_kernel(1.0)
    assert predicted("holders", 8, shares=quick).seconds == pytest.approx(without.seconds)
    assert predicted("holders", 8, shares=kernel).seconds == pytest.approx(8 * OWN, rel=1e-3)
    placed = predicted("holders", 8, join=linear_kernel(1e-10))
    assert placed.seconds - without.seconds == pytest.approx(1e-10 * held(8) / 8, rel=1e-3)


def test_elements_of_rows_are_cut_and_collected() -> None:
    of = zipf(0.02, 1.05, 20_000, 64)
    assert predicted("omnireduce", 4, of, finer=UNIT).kernels == pytest.approx(of.units * of.density * 64)
    union = of.units * 64 * float(of.union(4))
    assert union < predicted("omnireduce", 4, of, coarser=UNIT).kernels < 4 * union
    assert predicted("balanced", 4, of, finer=UNIT, coarser=UNIT).kernels < 1e-200
    moved = predicted("dense_ring", 4, of, list=replace(UNIT, speed=1.0)).kernels
    assert moved == of.units * of.unit_bytes  # a sum that comes dense is there: no unit of it is looked for


@pytest.mark.parametrize("scheme", SHIPPED)
def test_every_kernel_may_take_longer(scheme: str) -> None:
    """A slower kernel adds its own time only; where processors are shared, each takes as much longer."""
    of, apart = zipf(0.02, 1.05, 20_000, 16), 0.0
    one = linear_kernel(1e-6, 1e6, 1e-9)
    for name in KERNELS:
        apart += predicted(scheme, 8, of, **{name: one}).kernels
    every: dict[str, Any] = dict.fromkeys(KERNELS, one)
    together = predicted(scheme, 8, of, **every)
    assert 0.75 * apart <= together.kernels <= apart * (1 + 1e-9)
    assert predicted(scheme, 8, of, **every, cores=2).kernels == pytest.approx(4 * together.kernels)


def test_kernels_depend_on_no_earlier_call() -> None:
    for scheme in ("sparcml", "holders", "zen_cluster"):
        plan, of, calibration = plan_of(scheme, 8), zipf(0.02, 1.05, 20_000, 4), bandwidth_only("kernels")
        expected = ExpectedBytes(plan, 8, of)
        stages = program(expected, network(None, 8, calibration), apart=True)
        used = computing(stages, expected, replace(calibration, merge=UNIT, index=UNIT))
        fresh = computing(stages, ExpectedBytes(plan, 8, of), replace(calibration, merge=UNIT, index=UNIT))
        assert fresh.busiest == used.busiest > 0
