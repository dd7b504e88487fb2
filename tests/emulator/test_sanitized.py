"""Kernels and the calls that launch them are clean under sanitizers."""

from __future__ import annotations

import pytest

from tests.emulator.sanitized import assert_clean

KERNELS = ("codec", "compress", "expand", "holders", "merge", "place", "scan")
LOSSY = ("gpu_contribution", "gpu_calls")
TESTS = (*(f"targets/cuda/test_{name}" for name in KERNELS), *(f"runtime/lossy/test_{name}" for name in LOSSY))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("tests", TESTS)
@pytest.mark.parametrize("mode", ["address", "thread"])
def test_kernels_are_quiet(mode, tests):
    """Tests of whole calls run in four processes, since each fiber takes mappings."""
    assert_clean(mode, f"tests/{tests}.py", "-n4")
