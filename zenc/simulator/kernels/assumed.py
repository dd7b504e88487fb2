"""Calibrations where nothing was measured: of processors, or of GPUs where a topology has such."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from zenc.simulator.calibration import DEFAULTS, Calibration
from zenc.simulator.kernels.gpu_defaults import ESTIMATES
from zenc.topology.model import Topology
from zenc.topology.units import bandwidth_text

Device = Literal["cpu", "gpu"]


def assumed(topology: Topology | None, bandwidth: float | None = None, device: Device | None = None) -> Calibration:
    """Assumed numbers for ``topology``, or for links of ``bandwidth`` bytes a second; ``guess`` says of what.

    ``device``: what ranks are; by default GPUs where the topology has a level ``gpu``, or NVLinks, and CPU cores else.
    """
    has_gpus = topology is not None and of_gpus(topology)
    base = ESTIMATES if device == "gpu" or (device is None and has_gpus) else DEFAULTS
    if topology is None and bandwidth is None:
        return replace(base, guess=f"links of {bandwidth_text(base.bandwidth)}, {base.guess}")
    return base if bandwidth is None else replace(base, bandwidth=bandwidth)


def of_gpus(topology: Topology) -> bool:
    """Whether the ranks of ``topology`` are GPUs, as far as it says."""
    levels = {level.name for level in topology.levels}
    return "gpu" in levels or any(link.kind == "nvlink" for link in topology.links)
