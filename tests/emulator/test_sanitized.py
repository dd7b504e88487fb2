"""Kernels do nothing that sanitizers object to."""

from __future__ import annotations

import pytest

from tests.emulator.sanitized import assert_clean


@pytest.mark.parametrize("mode", ["address", "thread"])
def test_samples_without_a_fault_are_quiet(mode):
    assert_clean(mode, "tests/emulator/test_device.py")


KERNELS = ("codec", "compress", "expand", "holders", "merge", "place", "scan")
TESTS = (*(f"targets/cuda/test_{name}" for name in KERNELS), "runtime/compression/test_gpu_contribution")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("tests", TESTS)
@pytest.mark.parametrize("mode", ["address", "thread"])
def test_kernels_are_quiet(mode, tests):
    assert_clean(mode, f"tests/{tests}.py")
