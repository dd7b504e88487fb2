"""The clock, against times worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from zenc.plan.ir import Phase, PhaseKind, Tier
from zenc.scheme.model import Aggregation, Format, Partition
from zenc.simulator.contributor_counts import SegmentCounts
from zenc.simulator.event_sim import Clock, Costs, run
from zenc.simulator.symmetry import ClassProgram, Stage

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
