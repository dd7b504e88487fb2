"""Parameters of selections, for kernels: the same numbers on CPUs and on GPUs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnitChoice:
    """The units of a selection, as kernels read it: the number of its kind, two numbers that it has, and a key.

    ``FROM``: ``a`` is a magnitude, the bits of a float32, that units reach. ``TOP``: the ``a`` greatest, exactly;
    of equals the first ones. ``BISECTED``: from a threshold on that at least ``a`` reach, found in ``b`` halvings of
    the magnitudes (MSTopK, MLSys 2021). ``SAMPLED``: from a threshold on that is exact for a sample of ``b`` units, at
    the same share (DGC, ICLR 2018, section 5). ``OF_BLOCKS``: the ``a`` greatest of each block of ``b`` units; of a
    short last one in proportion, at least 1. ``AT_RANDOM``: each with a chance of ``a`` / 2^31.
    """

    kind: int
    a: int
    b: int = 0
    key: int = 0


FROM, TOP, BISECTED, SAMPLED, OF_BLOCKS, AT_RANDOM = range(6)
"""The numbers of the kinds of a choice."""
