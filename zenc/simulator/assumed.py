"""Calibrations where nothing was measured: of processors, or of GPUs where a topology has such.

Kernels of GPUs are estimated: counts of their passes over the memory, at the bandwidth of that memory. No GPU was timed
for these numbers. Of ``balanced`` it was counted in the emulator which sectors of 32 bytes its CUDA kernels read and
write, for float32 in blocks of 64 of which a rank of 8 holds 5.2 % and all together 10 % (a table in
``docs/internals/performance.md``): these are the bytes of ``pack``, ``merge``, ``expand`` and ``index`` below, by
slot or unit. The others were counted by hand. Rows are copied in vectors of 16 bytes, which is taken to reach 80 % of
the bandwidth. Owners by holders are chosen 32 at a time, which takes time and no bandwidth. Before any byte a call
takes 15 to 24 launches, 5 copies and 3 waits of its host.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from zenc.simulator.calibration import BOUNDLESS, DEFAULTS, Calibration, Kernel, linear_kernel
from zenc.topology.model import Topology
from zenc.topology.units import bandwidth_text

MEMORY = 3.0e12
"""Bytes a second that kernels get of the memory of an H100."""
ROWS = 0.8 * MEMORY / 2
"""Of values that are read and written in vectors of 16 bytes."""
CHOICE = 1e-6 / 32
"""Seconds that the owner of a row takes to be chosen, one of a warp's 32: a microsecond for all is a guess."""
SHARED = 1 / 6
"""Rows with a choice, for each unit of all index sets: those that several ranks hold, each of which counts it."""


def _passes(unit: float, slot: float, speed: float = ROWS) -> Kernel:
    """Of so many bytes of memory for a unit and a slot."""
    return linear_kernel(unit / MEMORY, speed, slot / MEMORY)


ESTIMATES = Calibration(
    name="GPU estimates",
    step=50e-6,
    message=1e-6,
    fan_in=0.0,  # of which nothing is known there
    call=500e-6,
    pack=_passes(23, 4.3),  # the tensor read once for marks, and where a block is held once more
    merge=_passes(2, 1.3),  # the union of bitmaps, then units
    expand=_passes(0, 4.1),  # the tensor written once
    list=_passes(64, 7.7),
    join=_passes(64, 1.0),
    index=_passes(2, 0.25, BOUNDLESS),
    owners=linear_kernel(CHOICE * SHARED, slot=0.25 / MEMORY),
    shares=_passes(23, 0.25, BOUNDLESS),
    finer=_passes(16, 0, BOUNDLESS),
    coarser=_passes(160, 0, BOUNDLESS),
    guess="50 us a step, GPU kernels by counts of their passes over 3 TB/s of memory",
)
"""The calibration of GPUs where nothing was measured: see above."""


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
