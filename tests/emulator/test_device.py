"""Correct kernels on the emulator give a GPU's results, in any order of their threads."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.device import Device, Segment

SAMPLES = Path(__file__).with_name("samples")


@pytest.fixture(scope="session")
def device() -> Device:
    return Device({"correct.cu": (SAMPLES / "correct.cu").read_text("utf-8")})


@pytest.fixture(params=[0, 1, 2])
def seed(request: pytest.FixtureRequest) -> int:
    return request.param


def test_scan_of_a_block(device, seed):
    kept = np.random.default_rng(1).integers(0, 2, 1000).astype(np.uint32)
    out = np.zeros(kept.sum(), np.uint32)
    device.launch("compact", (1,), [kept, len(kept), out], seed=seed)
    assert out.tolist() == np.flatnonzero(kept).tolist()


def test_a_block_waits_for_the_one_before_it(device, seed):
    values = np.arange(1, 201, dtype=np.uint64)
    out, done, drawn = np.zeros_like(values), np.zeros_like(values), np.zeros(1, np.uint64)
    device.launch("look_back", (len(values),), [values, out, done, drawn], seed=seed)
    assert out.tolist() == np.cumsum(values).tolist()


def test_atomics_of_all_blocks_meet(device, seed):
    values = np.random.default_rng(2).integers(1, 300, 20_000).astype(np.uint64)
    keys, counts = np.zeros(512, np.uint64), np.zeros(512, np.uint64)
    device.launch("count_values", (16,), [values, len(values), keys, counts, len(keys)], seed=seed)
    found = {int(key): int(count) for key, count in zip(keys, counts, strict=True) if key}
    assert found == {int(key): int(count) for key, count in zip(*np.unique(values, return_counts=True), strict=True)}


def test_operations_of_a_warp(device, seed):
    out = np.zeros((32, 10), np.int64)
    device.launch("halves", (1,), [out], threads=32, seed=seed)
    for lane, row in enumerate(out.tolist()):
        low, mask = lane < 16, 0xFFFF if lane < 16 else 0xFFFF0000
        assert row == [
            15 if low else 16,
            sum(1 << i for i in range(32) if mask >> i & 1 and (i % 2 if low else i % 3 == 0)),
            lane + 3 if lane + 3 < 32 else lane,
            lane ^ 5,
            lane - 2 if lane % 16 >= 2 else lane,
            int(low),
            int(low),
            0xF << lane // 4 * 4,
            max(i * 7 % 32 for i in range(32) if mask >> i & 1),
            31 * 32 // 2,
        ]


def test_arguments_are_checked(device):
    out = np.zeros((32, 10), np.int64)
    with pytest.raises(TypeError, match=r"halves\(i64 \* out\) takes 1 arguments, not 2"):
        device.launch("halves", (1,), [out, 3])
    with pytest.raises(TypeError, match=r"int 5 is no i64 \* out"):
        device.launch("halves", (1,), [5])
    with pytest.raises(TypeError, match="is not contiguous"):
        device.launch("halves", (1,), [out[:, ::2]])


def test_segments_are_as_kernels_see_them():
    assert ctypes.sizeof(Segment) == 72
