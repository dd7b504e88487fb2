"""Assumptions of predictions where nothing was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.gpu_predictions import compared, constants
from zenc.simulator.calibration import DEFAULTS, ESTIMATES, HASHED, assumed, by_nccl
from zenc.topology.shapes import dgx, nodes, torus


def test_gpus_are_known_by_their_level_or_links() -> None:
    assert dgx(1).has_gpus and nodes(2, gpus=4).has_gpus and not torus(2, 2).has_gpus
    assert assumed(dgx(1)).kernels == ESTIMATES.kernels == assumed(None, 1e9, "gpu").kernels
    assert assumed(torus(2, 2)).kernels == DEFAULTS.kernels == assumed(dgx(1), device="cpu").kernels


def test_nccl_is_there_where_kernels_are_those_of_gpus() -> None:
    assert by_nccl(None, assumed(None, 1e9, "gpu")) and by_nccl(dgx(1), assumed(dgx(1)))
    assert not by_nccl(dgx(1), assumed(dgx(1), device="cpu")) and not by_nccl(None, DEFAULTS)
    measured = replace(DEFAULTS, guess="")
    assert by_nccl(dgx(1), measured) and not by_nccl(torus(2, 2), measured) and not by_nccl(None, measured)


def test_what_is_assumed_is_said() -> None:
    assert assumed(None).note.startswith("not calibrated: links of 12.5 GB/s, 20 us a step")
    assert assumed(None, 1e9).bandwidth == 1e9 and "links" not in assumed(None, 1e9).note
    assert "as one H100 took them, 50 us a step, nothing measured between GPUs" in assumed(dgx(1)).note


def test_constants_of_gpus_are_those_of_the_measurements() -> None:
    kernels = ESTIMATES.kernels
    speeds = {f"speed of {name}": kernels[name].speed for name in ("pack", "merge", "expand")}
    slots = {f"{name} a slot": kernels[name].curve[0][1] for name in ("pack", "merge", "expand", "index")}
    others = {"hashed": HASHED, "call": ESTIMATES.call}
    found = {**speeds, **slots, **others}
    assert found == pytest.approx(constants(), rel=0.01)
    assert kernels["list"] == kernels["expand"] and kernels["join"].speed == kernels["expand"].speed
    assert all(kernels[name].curve[0][1] == kernels[name].curve[1][1] for name in ("pack", "merge", "expand", "index"))


def test_kernels_of_calls_on_one_gpu_are_near_what_they_took() -> None:
    """The dense call is within 5 %, rows of one rank of 8 within 30 %, lossless schemes of two ranks within 40 %."""
    off = {name: abs(predicted / measured - 1) for name, measured, predicted in compared()}
    dense = next(share for name, share in off.items() if "214,000,000" in name)
    assert dense < 0.05 and all(share < 0.3 for name, share in off.items() if "rows" in name)
    assert all(share < 0.4 for name, share in off.items() if "dense_ring" not in name)
