"""Bounds that no scheme can go below, for the units of a run, in bytes of values; indices and headers add to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zenc.gradients.index_sets import Gradients, figures


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the busiest rank: ``receive_bytes`` (B1), ``bandwidth_bytes`` (B2); ``seconds`` is B2 over the rate."""

    receive_bytes: int
    bandwidth_bytes: int
    seconds: float | None


def bounds(of: Gradients, bits_per_second: float | None) -> Bounds:
    """Return the bounds of a sum of the gradients ``of`` all ranks; without a rate those in bytes alone.

    B1: a rank receives every unit that another rank holds at least once. B2: ``zenc.gradients.index_sets``.
    """
    holders = of.holders()
    union = int(np.count_nonzero(holders))
    alone = [int(np.count_nonzero(holders[ids] == 1)) for ids in of.held]
    bandwidth = figures(of).bound_bytes
    seconds = bandwidth * 8 / bits_per_second if bits_per_second else None
    return Bounds((union - min(alone)) * of.unit_bytes, bandwidth, seconds)
