"""Calibrations in files, and the latency and fan-in of a network as ``zenc calibrate`` finds them."""

import json
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zenc.api import compile, compile_text
from zenc.calibrate.network import RING, Latency, _fan_in, latency
from zenc.errors import CostError
from zenc.plan.ir import Plan
from zenc.plan.unroll import expand
from zenc.simulator.calibration import (
    DEFAULTS,
    FAN_IN_SHARE,
    KERNELS,
    Calibration,
    Kernel,
    bandwidth_only,
    linear_kernel,
    read_calibration,
    rising,
)


def written(path: Path, **changes: Any) -> Path:
    file = path / "calibration.json"
    file.write_text(json.dumps({**DEFAULTS.to_json(), **changes}), encoding="utf-8")
    return file


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_calibration(written(tmp_path)) == DEFAULTS
    assert read_calibration(written(tmp_path, cores=2, bandwidth=7)).slowdown(8) == 4.0


@pytest.mark.parametrize(
    "change",
    [
        {"bandwidth": 0.0}, {"bandwidth": "fast"}, {"efficiency": 1.5}, {"step": -1.0}, {"message": float("nan")},
        {"fan_in": float("inf")}, {"hook_message": -1e-3}, {"burst": True}, {"cores": 0}, {"cores": 1.5},
        {"pack": {"speed": 1.0}}, {"pack": 3}, {"merge": {"speed": 0.0, "curve": [[0, 0], [1, 1e-9]]}},
        {"index": {"speed": 1e9, "curve": [[0, 0], [1, 1e-9]], "unit": 1e-9}},
        {"index": {"speed": 1e9, "curve": [[0, 0], [1, -1e-9]]}}, {"owners": {"speed": 1e9, "curve": [[0, 0]]}},
        {"owners": {"speed": 1e9, "curve": []}}, {"owners": {"speed": 1e9, "curve": [[0.1, 0], [1, 1e-9]]}},
        {"owners": {"speed": 1e9, "curve": [[0, 0], [0.5, 1e-9], [0.5, 2e-9]]}},
        {"owners": {"speed": 1e9, "curve": [[0, 0, 0], [0.5, 1e-9, 1]]}}, {"owners": {"speed": 1e9, "curve": 7}},
        {"owners": {"speed": 1e9, "curve": [[0, 1e-9], [0.5, 3e-9], [1, 2e-9]]}}, {"spread": -0.1},
        {"spread": "none"}, {"buffer": -1.0}, {"compression": {"top": 0.0}}, {"compression": {"top": "fast"}},
        {"compression": ["top"]}, {"name": 3}, {"strange": 1},
    ],
)  # fmt: skip
def test_what_can_not_be_is_said(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(CostError, match="bad-calibration"):
        read_calibration(written(tmp_path, **change))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"zenc_calibration": 2}', "\x00"])
def test_other_files_are_no_calibrations(tmp_path: Path, text: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(CostError, match="bad-calibration"):
        read_calibration(file)
    with pytest.raises(CostError, match="bad-calibration"):
        read_calibration(tmp_path / "missing.json")


def test_a_curve_that_falls_is_refused_where_it_falls(tmp_path: Path) -> None:
    """Beyond its last point the curve would come below 0: 5 ns, and 3 ns less for each tenth of the slots."""
    busy = {"speed": 1e9, "curve": [[0, 1e-9], [0.1, 5e-9], [0.2, 2e-9]]}
    words = "merge: its curve falls, from 5 ns a slot at 0.1 units to 2 at 0.2"
    with pytest.raises(CostError, match=words) as found:
        read_calibration(written(tmp_path, merge=busy))
    assert "let nothing else run" in str(found.value)


def test_files_from_before_some_of_it_was_kept_are_read(tmp_path: Path) -> None:
    file, later = tmp_path / "before.json", ("spread", "compression", "fan_in_from", "hook_byte", "hook_message")
    file.write_text(json.dumps({k: v for k, v in DEFAULTS.to_json().items() if k not in later}))
    assert read_calibration(file) == DEFAULTS
    assert read_calibration(written(tmp_path, spread=0.5)).spread == 0.5


def test_what_a_file_says_is_no_guess(tmp_path: Path) -> None:
    assert DEFAULTS.guess and not read_calibration(written(tmp_path)).guess


@given(st.lists(st.tuples(st.integers(-9, 99), st.integers(1, 9)), max_size=12))
def test_rising_values_are_the_nearest_ones(points: list[tuple[int, int]]) -> None:
    """Karush, Kuhn and Tucker hold: where above 0, weighted errors up to any place are at least 0, and 0 in all."""
    values, weights = [value for value, _ in points], [weight for _, weight in points]
    found = rising(values, weights)
    assert all(a <= b for a, b in pairwise([0.0, *found]))
    errors = [w * (v - f) for v, w, f in zip(values, weights, found, strict=True) if f > 0]
    sums = list(accumulate(errors))
    assert min(sums, default=0.0) > -1e-9 and abs(sum(errors)) < 1e-9


def test_files_of_an_older_version_are_told_from_others(tmp_path: Path) -> None:
    old = {name: value for name, value in DEFAULTS.to_json().items() if name not in ("index", "owners", "shares")}
    file = tmp_path / "old.json"
    file.write_text(json.dumps({**old, "zenc_calibration": 1}), encoding="utf-8")
    with pytest.raises(CostError, match=r"is of version 1 of calibrations; zenc [\d.]+ reads 2\n.*measure again"):
        read_calibration(file)
    file.write_text(json.dumps(old), encoding="utf-8")
    with pytest.raises(CostError, match="it lacks index, owners, shares"):
        read_calibration(file)


def test_kernels_take_units_and_bytes_and_slots() -> None:
    assert linear_kernel(1e-6, 1e9).seconds(1000, 1e6, 1e4) == pytest.approx(2e-3)
    assert linear_kernel(1e-6, 1e9, 1e-9).seconds(1000, 1e6, 1e6) == pytest.approx(3e-3)
    assert linear_kernel(1e-6).seconds(0, 0, 0) == 0
    assert list(DEFAULTS.kernels) == list(KERNELS)
    assert all(each.seconds(1e6, 1e9, 1e9) < 1e-200 for each in bandwidth_only("wire").kernels.values())
    assert Calibration().slowdown(1000) == 1.0


def test_a_curve_is_straight_between_its_points_and_beyond_them() -> None:
    bent = Kernel(((0.0, 1.0), (0.1, 2.0), (0.2, 2.5)), 1e300)
    assert [bent.seconds(units, 0.0, 10.0) for units in (0.0, 0.5, 1.5, 4.0)] == pytest.approx([10.0, 15.0, 22.5, 35.0])


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
