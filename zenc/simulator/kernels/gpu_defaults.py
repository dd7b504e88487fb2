"""Kernels of a GPU, estimated: counts of their passes over its memory, at the bandwidth of that memory.

No GPU was timed for these numbers. Of ``balanced`` it was counted in the emulator which sectors of 32 bytes its CUDA
kernels read and write, for float32 in blocks of 64 of which a rank of 8 holds 5.2 % and all together 10 % (a table in
``docs/internals/performance.md``): these are the bytes of ``pack``, ``merge``, ``expand`` and ``index`` below, by
slot or unit. The others were counted by hand. Rows are copied in vectors of 16 bytes, which is taken to reach 80 % of
the bandwidth. Owners by holders are chosen 32 at a time, which takes time and no bandwidth. Before any byte a call
takes 15 to 24 launches, 5 copies and 3 waits of its host.
"""

from __future__ import annotations

from zenc.simulator.calibration import Calibration
from zenc.simulator.kernels.curve import BOUNDLESS, Kernel, linear_kernel

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
