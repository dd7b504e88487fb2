"""Calibrations, read from files and written to them."""

from __future__ import annotations

import json
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zenc.errors import CostError
from zenc.simulator.calibration import (
    DEFAULTS,
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
        {"bandwidth": 0.0},
        {"bandwidth": "fast"},
        {"efficiency": 1.5},
        {"step": -1.0},
        {"message": float("nan")},
        {"fan_in": float("inf")},
        {"hook_message": -1e-3},
        {"burst": True},
        {"cores": 0},
        {"cores": 1.5},
        {"pack": {"speed": 1.0}},
        {"pack": 3},
        {"merge": {"speed": 0.0, "curve": [[0, 0], [1, 1e-9]]}},
        {"index": {"speed": 1e9, "curve": [[0, 0], [1, 1e-9]], "unit": 1e-9}},
        {"index": {"speed": 1e9, "curve": [[0, 0], [1, -1e-9]]}},
        {"owners": {"speed": 1e9, "curve": [[0, 0]]}},
        {"owners": {"speed": 1e9, "curve": []}},
        {"owners": {"speed": 1e9, "curve": [[0.1, 0], [1, 1e-9]]}},
        {"owners": {"speed": 1e9, "curve": [[0, 0], [0.5, 1e-9], [0.5, 2e-9]]}},
        {"owners": {"speed": 1e9, "curve": [[0, 0, 0], [0.5, 1e-9, 1]]}},
        {"owners": {"speed": 1e9, "curve": 7}},
        {"owners": {"speed": 1e9, "curve": [[0, 1e-9], [0.5, 3e-9], [1, 2e-9]]}},
        {"spread": -0.1},
        {"spread": "none"},
        {"buffer": -1.0},
        {"compression": {"top": 0.0}},
        {"compression": {"top": "fast"}},
        {"compression": ["top"]},
        {"name": 3},
        {"strange": 1},
    ],
)
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
