"""The timeline of a step against a walk through its operations, and against the replay of events."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zenc.strategy.simulation.replay import Operations, replay
from zenc.strategy.simulation.step import StepTensor, TrainingStep
from zenc.strategy.simulation.timeline import RESOURCES, Resource, Timeline, after_gap, matrices, product

durations = st.integers(0, 50).map(lambda ms: ms / 1000)
operations = st.lists(st.tuples(st.sampled_from(list(Resource)[1:]), durations), max_size=5)
tensors = st.lists(st.tuples(durations, operations), min_size=1, max_size=12)
Drawn = list[tuple[float, Operations]]


def table(lists: Sequence[Operations]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    most = max(1, *map(len, lists))
    on, seconds = np.full((len(lists), most), -1), np.zeros((len(lists), most))
    for row, each in enumerate(lists):
        for column, (resource, took) in enumerate(each):
            on[row, column], seconds[row, column] = resource, took
    return on, seconds


def timeline(drawn: Drawn) -> Timeline:
    made = matrices(*table([each for _, each in drawn]))
    return Timeline(after_gap(made, np.array([gap for gap, _ in drawn])))


def walked(drawn: Drawn) -> float:
    """Return when the last resource is free, if each serves tensors in their order."""
    free = [0.0] * RESOURCES
    for gap, each in drawn:
        free[Resource.BACKWARD] += gap
        now = free[Resource.BACKWARD]
        for resource, took in each:
            now = free[resource] = max(now, free[resource]) + took
    return max(free)


@given(tensors)
@settings(deadline=None)
def test_a_timeline_takes_what_a_walk_through_it_takes(drawn: Drawn) -> None:
    assert timeline(drawn).seconds == pytest.approx(walked(drawn), abs=1e-12)


@given(tensors, st.data())
@settings(deadline=None)
def test_a_change_of_one_tensor_is_foreseen_and_made(drawn: Drawn, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(drawn) - 1))
    others = data.draw(st.lists(operations, min_size=1, max_size=4))
    of = timeline(drawn)
    made = after_gap(matrices(*table(others)), drawn[at][0])
    changed = [[*drawn[:at], (drawn[at][0], other), *drawn[at + 1 :]] for other in others]
    assert of.with_each(at, made) == pytest.approx([walked(each) for each in changed], abs=1e-12)
    of.change(at, made[-1])
    assert of.seconds == pytest.approx(walked(changed[-1]), abs=1e-12)


@given(tensors)
@settings(deadline=None)
def test_the_product_of_all_matrices_is_the_whole_step(drawn: Drawn) -> None:
    whole = after_gap(matrices(*table([drawn[0][1]])), drawn[0][0])[0]
    for gap, each in drawn[1:]:
        whole = product(after_gap(matrices(*table([each])), gap)[0], whole)
    assert float(whole.max()) == pytest.approx(timeline(drawn).seconds, abs=1e-12)


@given(st.lists(st.tuples(durations, st.lists(durations, min_size=4, max_size=4)), min_size=1, max_size=12))
@settings(deadline=None)
def test_a_replay_of_tensors_that_go_the_same_way_takes_as_long(drawn: list[tuple[float, list[float]]]) -> None:
    way = (Resource.STREAM, Resource.INSIDE_PUSH, Resource.ACROSS, Resource.HOST)
    lists: Drawn = [(gap, tuple(zip(way, took, strict=True))) for gap, took in drawn]
    step = TrainingStep("drawn", tuple(StepTensor(str(at), 1, gap) for at, (gap, _) in enumerate(drawn)))
    assert replay(step, [each for _, each in lists]).seconds == pytest.approx(timeline(lists).seconds, abs=1e-12)


def test_a_replay_serves_what_came_first_and_shares_the_links_inside() -> None:
    """The second tensor's push need not wait for the first one's pull; both use one link, one after the other."""
    step = TrainingStep("two", (StepTensor("a", 1, 1.0), StepTensor("b", 1, 1.0)))
    push, across, pull = Resource.INSIDE_PUSH, Resource.ACROSS, Resource.INSIDE_PULL
    found = replay(step, [((push, 1.0), (across, 1.0), (pull, 2.0)), ((push, 2.0), (across, 1.0), (pull, 1.0))])
    inside = [(s.tensor, s.resource, s.start, s.end) for s in found.spans if s.resource in (push, pull)]
    assert inside == [(0, push, 1.0, 2.0), (1, push, 2.0, 4.0), (0, pull, 4.0, 6.0), (1, pull, 6.0, 7.0)]
    assert found.seconds == 7.0
    assert found.idle(across) == [(3.0, 4.0)]


def test_operations_on_the_backward_pass_stop_it() -> None:
    step = TrainingStep("two", (StepTensor("a", 1, 1.0), StepTensor("b", 1, 1.0)))
    lists: Drawn = [(1.0, ((Resource.BACKWARD, 3.0),)), (1.0, ())]
    assert replay(step, [each for _, each in lists]).seconds == timeline(lists).seconds == 5.0
