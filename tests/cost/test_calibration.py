"""Calibrations, from files and to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zenc.cost.calibration import DEFAULTS, Calibration, Kernel, read_calibration
from zenc.errors import CostError


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
        {"burst": True},
        {"cores": 0},
        {"cores": 1.5},
        {"pack": {"unit": 1.0}},
        {"pack": 3},
        {"merge": {"unit": 0.0, "speed": 0.0}},
        {"name": 3},
        {"strange": 1},
        {"zenc_calibration": 2},
    ],
)
def test_what_can_not_be_is_said(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(CostError, match="bad-calibration"):
        read_calibration(written(tmp_path, **change))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"zenc_calibration": 1}', "\x00"])
def test_other_files_are_no_calibrations(tmp_path: Path, text: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(CostError, match="bad-calibration"):
        read_calibration(file)
    with pytest.raises(CostError, match="bad-calibration"):
        read_calibration(tmp_path / "missing.json")


def test_kernels_take_units_and_bytes() -> None:
    assert Kernel(1e-6, 1e9).seconds(1000, 1e6) == pytest.approx(2e-3)
    assert Calibration().slowdown(1000) == 1.0
