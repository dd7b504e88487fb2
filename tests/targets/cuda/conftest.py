"""The kernels of all mappings on the emulator, compiled once for all runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from tests.emulator.device import Device
from zenc.codegen.render import UnitInputs, render

SEED = 0x5EED
INPUTS = {
    "contiguous": UnitInputs("contiguous"),
    "permutation": UnitInputs("permutation", SEED),
    "hierarchical_hash": UnitInputs("hierarchical_hash", SEED, 3, 2.0, 0.2),
    "holders": UnitInputs("holders"),
}
"""What ``kernels_of`` makes of the same names for CPUs."""


@pytest.fixture(scope="session")
def device_of() -> Callable[[str], Device]:
    return cache(lambda mapping: Device(render(INPUTS[mapping], "cuda")))


@pytest.fixture(scope="session")
def device(device_of: Callable[[str], Device]) -> Device:
    """For all that is the same for every mapping."""
    return device_of("contiguous")
