"""Statistics of gradients: density, densification, skewness, and the least bytes that any scheme must move.

Densification and skewness are those of Zen (OSDI 2025), section 2. The bandwidth bound: a unit that c of n ranks hold
takes c - 1 one-way messages to be summed and n - 1 more to be known everywhere, evenly over the ranks; indices and
headers are left out. It is proven for c = n, and reached by owners among the holders for any c.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zenc.gradients.index_sets import Gradients
from zenc.wire.formats import slots_of


@dataclass(frozen=True, slots=True)
class Figures:
    """``density`` of a rank on average, ``density_out`` of the sum, ``densification`` the ratio of both.

    ``skewness``: the density of the fullest of as many ranges of units as there are ranks, over that of all, averaged
    over the ranks. ``overlap``: the share of one rank's units that another one holds, on average. Without any unit
    these are 1.
    """

    density: float
    density_out: float
    densification: float
    skewness: float
    overlap: float
    dense_ring_bytes: int
    bound_bytes: int


def figures(of: Gradients) -> Figures:
    """The figures of the gradients of ``of.size`` ranks; bytes are those that each rank sends."""
    size, holders = of.size, of.holders()
    total, union = int(holders.sum()), int(np.count_nonzero(holders))
    pairs = int((holders * (holders - 1)).sum())
    bound = int((holders[holders > 0] + (size - 2)).sum()) if size > 1 else 0
    return Figures(
        density=of.density,
        density_out=union / max(1, of.units),
        densification=union * size / total if total else 1.0,
        skewness=_skewness(of),
        overlap=pairs / (total * (size - 1)) if total and size > 1 else 1.0,
        dense_ring_bytes=2 * (size - 1) * of.units * of.unit_bytes // size,
        bound_bytes=bound * of.unit_bytes // size,
    )


def _skewness(of: Gradients) -> float:
    """The fullest of n ranges over the mean one."""
    width = slots_of(of.units, of.size, 0)
    ratios = [np.bincount(ids // width).max() * of.units / (width * len(ids)) for ids in of.held if len(ids)]
    return float(np.mean(ratios)) if ratios else 1.0
