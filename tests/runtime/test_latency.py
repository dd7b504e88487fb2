"""Latency and fan-in of a network as ``zenc calibrate`` finds them: from empty calls, and from lost bytes."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from zenc.api import compile, compile_text
from zenc.calibrate.network import RING, Latency, _fan_in, latency
from zenc.plan.ir import Plan
from zenc.plan.unroll import expand
from zenc.simulator.calibration import FAN_IN_SHARE


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


BANDWIDTH, MESSAGE = 12.5e6, 80e-6


def network(size: int, lost: float, spared: float = 0.0) -> Any:
    """Return a network of ``size`` ranks: each message after the first costs ``lost`` bytes at most.

    ``spared``: bytes of all messages that come at once.
    """

    def seconds(distances: Sequence[int], each: int) -> float:
        beyond = max(0.0, each - spared / len(distances))
        less = min(lost, FAN_IN_SHARE * beyond) * (len(distances) - 1)
        return (len(distances) * each + less) / BANDWIDTH + len(distances) * MESSAGE

    return SimpleNamespace(size=size, next=1, others=list(range(1, size)), seconds=seconds)


@pytest.mark.parametrize("size", [3, 6, 8, 64])
@pytest.mark.parametrize("lost", [0.0, 45e3, 110e3, 200e3])
def test_messages_are_long_enough_to_lose_all_that_they_may(size: int, lost: float) -> None:
    """A ring of 1 MB, which takes long enough at 100 Mbit/s, would have too short messages for that."""
    most, spared = _fan_in(cast(Any, network(size, lost)), 1 << 20, BANDWIDTH)
    assert most == pytest.approx(lost, rel=0.02, abs=50.0 * size)
    assert spared == pytest.approx(0.0, abs=60.0 * size * size) or lost < 65e3  # that short ones can't tell from long


@pytest.mark.parametrize("size", [4, 8])
def test_short_messages_tell_how_many_bytes_lose_nothing(size: int) -> None:
    most, spared = _fan_in(cast(Any, network(size, 110e3, 100e3)), 1 << 20, BANDWIDTH)
    assert most == pytest.approx(110e3, rel=0.02) and spared == pytest.approx(100e3, rel=0.02)


def test_two_ranks_have_no_fan_in() -> None:
    assert _fan_in(cast(Any, network(2, 110e3)), 1 << 20, BANDWIDTH) == (0.0, 0.0)
