"""Latency from the times of empty calls, played step by step on the schemes that are measured."""

from __future__ import annotations

import numpy as np
import pytest

from zenc.api import compile, compile_text
from zenc.calibrate.network import RING, Latency, latency
from zenc.plan.ir import Plan
from zenc.plan.unroll import expand


def measured() -> list[Plan]:
    """Return the plans of ``zenc.api.calibrate``: of one step, of two, and of many."""
    return [artifact.plan for artifact in (compile("agsparse"), compile("balanced"), compile_text(RING))]


def played(plan: Plan, size: int, of: Latency) -> float:
    """Return the seconds of an empty call: steps follow each other, and messages of a step go out one by one."""
    seconds = of.call
    for _, _, step in expand(plan, size):
        if len(step.src):
            seconds += of.step + of.message * int(np.bincount(step.src).max())
    return seconds


@pytest.mark.parametrize("size", [3, 4, 8, 64])
def test_what_calls_are_made_of_is_found(size: int) -> None:
    truth = Latency(1e-3, 4e-4, 3e-5)
    found = latency(size, *(played(plan, size, truth) for plan in measured()))
    assert (found.call, found.step, found.message) == pytest.approx((truth.call, truth.step, truth.message))


def test_two_ranks_have_steps_alone() -> None:
    """Two ranks can't tell a message from a step."""
    found = latency(2, *(played(plan, 2, Latency(1e-3, 4e-4, 1e-4)) for plan in measured()))
    assert (found.call, found.step, found.message) == pytest.approx((1e-3, 5e-4, 0))


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((2e-3, 1e-3, 1e-3), (2e-3, 0, 0)),  # a second step takes nothing: so does the first
        ((1e-3, 1.1e-3, 5e-2), (9e-4, 1e-4, 0)),  # a step takes no more than an exchange
        ((1e-3, 4e-3, 2e-3), (0, 0, 1e-3)),  # a ring of many steps takes less than two exchanges: all is messages
        ((0.0, 0.0, 0.0), (0, 0, 0)),
    ],
)
def test_times_that_make_no_sense_give_nothing_below_zero(times, expected) -> None:
    found = latency(4, *times)
    assert (found.call, found.step, found.message) == pytest.approx(expected)
