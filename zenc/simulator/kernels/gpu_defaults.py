"""Kernels of a GPU, estimated: counts of their passes over its memory, at the bandwidth of that memory.

No GPU was timed for these numbers. Of ``balanced`` it was counted which bytes its CUDA kernels read and write, for 214
million float32 of which a rank of 8 holds 5.2 % and all together 10 %; accesses that are not in order count as whole
sectors of 32 bytes, and atomics as they are serialised. By slot or unit these are the bytes below. Rows are copied in
words of 8 bytes, which reaches about a third of the bandwidth. Owners by holders are chosen one after another, which
takes time and no bandwidth. Before any byte a call takes 16 to 28 launches, as many copies and 3 waits of its host.
"""

from __future__ import annotations

from zenc.simulator.calibration import Calibration
from zenc.simulator.kernels.curve import BOUNDLESS, Kernel, linear_kernel

MEMORY = 3.0e12
"""Bytes a second that kernels get of the memory of an H100."""
ROWS = MEMORY / 3 / 2
"""Of values that are read and written in words of 8 bytes."""
CHOICE = 200e-9
"""Seconds that one owner of a row takes to be chosen."""
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
    pack=_passes(122, 7.7),  # a mark for each slot, then units gathered into their places
    merge=_passes(68, 1.4),  # the union of bitmaps, then units
    expand=_passes(0, 49),  # every slot of the tensor looks up whether it is there, and where
    list=_passes(64, 7.7),
    join=_passes(64, 1.0),
    index=_passes(23, 0.25, BOUNDLESS),
    owners=linear_kernel(CHOICE * SHARED, slot=0.25 / MEMORY),
    shares=_passes(23, 0.25, BOUNDLESS),
    finer=_passes(16, 0, BOUNDLESS),
    coarser=_passes(160, 0, BOUNDLESS),
    guess="50 us a step, GPU kernels by counts of their passes over 3 TB/s of memory",
)
"""What counts for GPUs where nothing was measured: see above."""
