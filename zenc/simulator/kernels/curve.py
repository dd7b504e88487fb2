"""Seconds of a kernel, by units, bytes and slots: a curve that never falls, and a speed.

Kernel = curve speed                        # seconds a slot by the share of slots that is occupied; bytes a second
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Curve: TypeAlias = tuple[tuple[float, float], ...]

BOUNDLESS = 1e300
"""The speed of a kernel that sees no values."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """Seconds of a kernel: values at ``speed`` bytes a second, and for each slot what ``curve`` says.

    A curve has two points or more: units a slot from 0 on, ascending, and seconds a slot, which never fall. Between
    them it is straight, and beyond the last as steep as before it. It bends, since processors guess best what is in
    words of a bitmap that are nearly all empty, and some kernels do many units at once.
    """

    curve: Curve
    speed: float

    def seconds(self, units: float, bytes: float, slots: float) -> float:
        """For ``units`` out of ``slots``."""
        return float(self.each(np.array([units], np.float64), bytes, np.array([slots], np.float64))[0])

    def each(self, units: Floats, bytes: Floats | float, slots: Floats) -> Floats:
        """The same of many: seconds, of the shape of the arguments."""
        (*_, before, last), (at, seconds) = self.curve, np.array(self.curve).T
        density = np.divide(units, slots, out=np.zeros_like(units), where=slots > 0)
        steep = (last[1] - before[1]) / (last[0] - before[0])
        of_slot = np.interp(density, at, seconds) + np.maximum(density - last[0], 0.0) * steep
        return np.asarray(of_slot * slots + bytes / self.speed)

    def unsound(self) -> str:
        """The fault of an impossible curve, in words; "" where there is none."""
        at = [units for units, _ in self.curve]
        if not (len(at) > 1 and at[0] == 0 and all(a < b < inf for a, b in pairwise(at))):
            return "a curve has points from 0 units on, ascending"
        for (x, y), (x2, y2) in pairwise(self.curve):
            if y2 < y:
                return f"its curve falls, from {y * 1e9:.3g} ns a slot at {x:.3g} units to {y2 * 1e9:.3g} at {x2:.3g}"
        return ""


def linear_kernel(unit: float, speed: float = BOUNDLESS, slot: float = 0.0) -> Kernel:
    """A kernel of so many seconds a unit and a slot."""
    return Kernel(((0.0, slot), (1.0, slot + unit)), speed)


def rising(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The nearest numbers [n] to ``values`` [n] by weighted least squares that never fall below the one before, or 0.

    Isotonic regression by pooling adjacent violators (Ayer, Brunk, Ewing, Reid, Silverman, 1955).
    """
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        pools.append((value, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, of_a, m), (b, of_b, n) = pools[-2:]
            pools[-2:] = [((a * of_a + b * of_b) / (of_a + of_b), of_a + of_b, m + n)]
    return [max(0.0, mean) for mean, _, count in pools for _ in range(count)]
