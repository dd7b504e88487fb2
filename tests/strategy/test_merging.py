"""Cuts into groups as good as brute force finds, the timeline of a step against a replay, and saved strategies."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.refusals import refusals
from zenc.errors import ArtifactError
from zenc.kinds import open as open_text
from zenc.strategy.artifact import MANIFEST, is_compiled_strategy, load_compiled_strategy
from zenc.strategy.merging import fused, search_fusion, search_groups
from zenc.strategy.pipeline import StrategyArtifacts
from zenc.strategy.simulation.replay import Operations, replay
from zenc.strategy.simulation.step import StepTensor, TrainingStep
from zenc.strategy.simulation.timeline import RESOURCES, Resource, Timeline, after_gap, matrices, product

steps = st.lists(st.integers(1, 1 << 22), min_size=2, max_size=40).map(
    lambda drawn: TrainingStep("drawn", tuple(StepTensor(str(i), n, n * 2e-9) for i, n in enumerate(drawn)))
)


def modelled(step: TrainingStep, start: float = 4e-4) -> Callable[[tuple[int, ...]], float]:
    """Return a step's time if groups are encoded and sent one after another: a constant, and by size."""

    def seconds(ends: tuple[int, ...]) -> float:
        ready = free = 0.0
        for group in step.merged(ends).tensors:
            ready += group.gap
            free = max(ready, free) + start + group.numel * 3e-9
        return free

    return seconds


@given(steps)
@settings(deadline=None)
def test_the_search_finds_the_best_cut(step: TrainingStep) -> None:
    count, seconds = len(step.tensors), modelled(step)
    found = search_groups(count, seconds, least_gain=0.0)
    best = min(map(seconds, [(), *((cut,) for cut in range(1, count))]))
    assert found.seconds == pytest.approx(best, rel=0.02)
    assert found.asked <= 3 + 2 * count.bit_length()


@given(steps, st.integers(1, 5))
@settings(deadline=None)
def test_more_groups_are_never_worse_and_each_is_asked_for_once(step: TrainingStep, most: int) -> None:
    asked: list[tuple[int, ...]] = []
    seconds = modelled(step)

    def watched(ends: tuple[int, ...]) -> float:
        asked.append(ends)
        return seconds(ends)

    found = search_groups(len(step.tensors), watched, most)
    assert len(asked) == len(set(asked)) == found.asked
    assert found.seconds == seconds(found.ends) <= seconds(())
    assert len(found.ends) < most


@given(steps, st.integers(1 << 10, 1 << 24))
@settings(deadline=None)
def test_buffers_are_filled_in_order_and_hold_no_more_than_they_may(step: TrainingStep, bytes: int) -> None:
    groups = step.merged(fused(step, bytes)).tensors
    assert sum(group.numel for group in groups) == step.numel
    alone = {tensor.numel for tensor in step.tensors}
    assert all(4 * group.numel <= bytes or group.numel in alone for group in groups)


@given(steps)
@settings(deadline=None)
def test_a_fusion_is_at_least_as_good_as_one_buffer_for_all(step: TrainingStep) -> None:
    seconds = modelled(step)
    found = search_fusion(step, seconds)
    assert found.seconds == seconds(found.ends) <= seconds(())


RULES = """tensors "h.*": dense_ring  tensors above 1 MB: dense_ring on host
    others: choose from [dense_ring, double_binary_tree]"""
GROUPS = ("", "groups: cuts(2, 5)", "groups: search(3)", "groups: fused(4 MB)", "groups: fused")
OTHERS = {"tensors": {"is": "others"}, "device": "", "digest": ""}


def made(folder: Path, groups: str = "") -> StrategyArtifacts:
    """Return a compiled strategy of three rules, two of which share an artifact."""
    text = folder / "step.zen"
    text.write_text(f"strategy mine {{ {groups} {RULES} }}")
    return open_text(text, ranks=4).compile("cpu")


@pytest.mark.parametrize("groups", GROUPS)
def test_what_is_written_is_read_again(tmp_path: Path, groups: str) -> None:
    before = made(tmp_path, groups)
    saved = before.save(tmp_path / "out")
    assert saved.keys() == before.distinct.keys() and is_compiled_strategy(tmp_path / "out")
    found = load_compiled_strategy(tmp_path / "out")
    assert (found.name, found.groups) == ("mine", before.strategy.groups)
    pairs = list(zip(found.rules, before.strategy.rules, strict=True))
    assert all((rule.tensors, rule.device) == (of.tensors, of.device) for rule, of in pairs)
    assert [rule.artifact.digest for rule in found.rules] == [each.digest for each in before.artifacts]
    assert [rule.artifact.choosing is not None for rule in found.rules] == [False, False, True]
    assert found.matching("h.0", 4) is found.rules[0] and found.matching("w", 4) is found.rules[2]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"zenc": "0.0"}, "other-version"),
        ({"rules": []}, "artifact-damaged"),
        ({"groups": {"is": "cuts", "ends": ["two"]}}, "artifact-damaged"),
        ({"groups": {"is": "folds"}}, "artifact-damaged"),
        ({"rules": [{**OTHERS, "directory": "../out"}]}, "artifact-damaged"),
        ({"rules": [{**OTHERS, "directory": "dense_ring"}]}, "artifact-damaged"),
    ],
    ids=["version", "no rules", "no numbers", "no groups", "outside", "another scheme"],
)
def test_an_edited_strategy_is_refused(tmp_path: Path, change: dict[str, Any], error: str) -> None:
    made(tmp_path).save(tmp_path / "out")
    file = tmp_path / "out" / MANIFEST
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    assert [each.id for each in refusals(ArtifactError, load_compiled_strategy, tmp_path / "out")] == [error]


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
