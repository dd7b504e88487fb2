"""The clock, against times worked out by hand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.shipped import SHIPPED, plan_of
from zenc.analysis.expected_bytes import ExpectedBytes
from zenc.gradients.profile import Profile
from zenc.gradients.profile_generators import uniform, zipf
from zenc.plan.ir import Phase, PhaseKind, Tier
from zenc.scheme.model import Aggregation, Format, Partition
from zenc.simulator.calibration import KERNELS, bandwidth_only, linear_kernel
from zenc.simulator.compute_model import computing
from zenc.simulator.contributor_counts import SegmentCounts
from zenc.simulator.event_sim import Clock, Costs, run
from zenc.simulator.predict import Prediction, network, predict
from zenc.simulator.symmetry import ClassProgram, Stage, program

RATE = 100.0
PUSH = Phase(PhaseKind.PUSH, (), Format.AUTO, Tier("", None, "", Partition.PARALLELISM, Aggregation.INCREMENTAL))
Moves = list[tuple[int, int, float]]


def stage(number: int, moves: Moves, size: int) -> Stage:
    """Return messages from rank to rank of given bytes, on one switch."""
    src, dst, bytes = (np.array(column) for column in zip(*moves, strict=True))
    one, flow = np.ones(len(moves)), np.arange(len(moves))
    on = np.r_[flow, flow], np.r_[src, dst + size], np.r_[one, one]
    return Stage(PUSH, number, bytes.astype(float), src, dst, one, one, *on, SegmentCounts(np.zeros((size, 4))))


def clock(steps: list[Moves], size: int, delays: Sequence[float] = (), **given: float) -> Clock:
    stages = tuple(stage(number, moves, size) for number, moves in enumerate(steps, 1))
    ones, ranks = np.ones(size, dtype=np.int64), np.arange(size)
    of = ClassProgram(ones, ranks, np.ones(2 * size, dtype=np.int64), np.arange(2 * size), stages)
    costs = Costs(
        before=[np.full(size, given.get("before", 0.0)) for _ in stages],
        beside=[np.full(size, given.get("beside", 0.0)) for _ in stages],
        after=[np.full(size, given.get("after", 0.0)) for _ in stages],
        loads=[one.bytes for one in stages],
        delays=[np.array(delays or [given.get("delay", 0.0)] * len(one.src)) for one in stages],
        start=np.full(size, given.get("start", 0.0)),
        buffer=given.get("buffer", 0.0),
    )
    return run(of, costs, np.full(2 * size, RATE), trace=True)


def test_a_message_takes_its_bytes_over_the_rate_and_what_is_around_it() -> None:
    found = clock([[(0, 1, 50.0)]], 2, start=1.0, before=0.25, after=2.0, delay=0.5)
    assert found.ends.tolist() == [4.25, 4.25]
    (first, second) = sorted(found.spans, key=lambda span: span.rank)
    assert (first.start, first.ready, first.sent, first.end) == (1.0, 1.25, 2.25, 4.25)
    assert second.stage == 0


def test_both_ways_at_once() -> None:
    assert clock([[(0, 1, 50.0), (1, 0, 100.0)]], 2).ends.tolist() == [1.0, 1.0]


def test_what_one_leaves_the_other_takes() -> None:
    """Two messages to one rank share its link; when the short one ends, the long one has all of it."""
    found = clock([[(0, 2, 50.0), (1, 2, 100.0)]], 3)
    assert found.ends == pytest.approx([1.0, 1.5, 1.5])


def test_a_rank_that_is_done_goes_on_alone() -> None:
    """Ranks 0 and 1 are in the second step while ranks 2 and 3 are in the first."""
    found = clock([[(0, 1, 10.0), (2, 3, 100.0)], [(1, 0, 10.0), (3, 2, 10.0)]], 4)
    assert found.ends == pytest.approx([0.2, 0.2, 1.1, 1.1])


def test_a_message_waits_for_its_receiver() -> None:
    found = clock([[(2, 1, 100.0)], [(0, 1, 10.0)]], 3)
    assert found.ends == pytest.approx([1.1, 1.1, 1.0])
    assert found.until == pytest.approx([1.0, 1.1])


def test_a_message_over_a_long_way_arrives_behind_one_that_left_later() -> None:
    found = clock([[(0, 2, 10.0), (1, 2, 50.0)]], 3, delays=(5.0, 0.0))
    assert found.ends == pytest.approx([5.2, 0.6, 5.2])


def test_nothing_to_do_takes_no_time() -> None:
    found = clock([[(0, 1, 10.0)]], 3, start=0.5)
    assert found.ends == pytest.approx([0.6, 0.6, 0.5])


def test_a_sender_goes_on_when_the_rest_is_in_its_buffers() -> None:
    """Two messages share the sender's link from 0.5 s on, which delays the first one by half a second."""
    steps: list[Moves] = [[(0, 1, 100.0)], [(0, 2, 100.0)]]
    assert clock(steps, 3).ends == pytest.approx([2.0, 1.0, 2.0])
    assert clock(steps, 3, buffer=50.0).ends == pytest.approx([1.5, 1.5, 2.0])
    assert clock(steps, 3, buffer=1e9).ends == pytest.approx([0.0, 2.0, 2.0])


def test_what_is_computed_beside_messages_takes_time_only_where_it_is_longer() -> None:
    assert clock([[(0, 1, 50.0)]], 2, beside=0.4, after=1.0).ends == pytest.approx([1.5, 1.5])
    assert clock([[(0, 1, 50.0)]], 2, beside=0.8, after=1.0).ends == pytest.approx([1.8, 1.8])


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
