"""The fan-in that ``zenc calibrate`` finds for a network whose receivers lose a known number of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from zenc.calibrate.network import _fan_in
from zenc.simulator.calibration import FAN_IN_SHARE

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
