"""The kernels of all mappings, compiled once for all runs: on the emulator, and with ``-m gpu`` on a GPU."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.emulator.device import Device
from tests.gpu.device import GpuDevice
from tests.gpu.machine import gpu
from zenc.codegen.render import KINDS, environment, render
from zenc.scheme.model import Contiguous, HierarchicalHash, Holders, Permutation
from zenc.scheme.model import Mapping as SlotMapping

Open = Callable[[Mapping[str, str]], Device]

SEED = 0x5EED
MAPPINGS: dict[str, SlotMapping] = {
    "contiguous": Contiguous(),
    "permutation": Permutation(SEED),
    "permuted words": Permutation(SEED, block=64),
    "hierarchical_hash": HierarchicalHash(3, 2.0, 0.2, SEED),
    "holders": Holders(),
}
"""Names of mappings for which ``kernels_of`` makes what CPUs have."""


@pytest.fixture(scope="session", params=["emulator", pytest.param("gpu", marks=pytest.mark.gpu)])
def opened(request: pytest.FixtureRequest) -> Open:
    """The machine that compiles rendered sources, and launches their kernels."""
    return Device if request.param == "emulator" else lambda sources: GpuDevice(sources, gpu())


@pytest.fixture(scope="session")
def device_of(opened: Open) -> Callable[[str], Device]:
    return cache(lambda mapping: opened(render(type(MAPPINGS[mapping]), "cuda")))


@pytest.fixture(scope="session")
def device(device_of: Callable[[str], Device]) -> Device:
    """Kernels that are the same for every mapping."""
    return device_of("contiguous")


@pytest.fixture(scope="session")
def permuter_of(opened: Open) -> Callable[[str], Device]:
    """Kernels that map ids to slots, and back."""
    template = environment().from_string(Path(__file__).with_name("permute.cu.j2").read_text("utf-8"))
    return cache(lambda mapping: opened({"kernels.cu": template.render(mapping=KINDS[type(MAPPINGS[mapping])])}))
