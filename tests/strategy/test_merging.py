"""Groups of tensors: the binary searches against every cut, on steps whose costs have the right shape."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zenc.strategy.merging import fused, search_fusion, search_groups
from zenc.strategy.simulation.step import StepTensor, TrainingStep

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
