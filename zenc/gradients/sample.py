"""A sample of units, the same on all ranks, and the number of ranks that hold each of them.

    Sample      = units, ids [s] ascending                       # all units where there are few
    HolderCounts = a Sample, steps that were counted, and of each unit the ranks that held it

One unit is taken of each of s equal neighbourhoods, where a hash of its number says: so neighbourhoods and ranges are
met evenly, and no regularity of the units is. All ranks take the same ones without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zenc.gradients.profile import MOST_RANGES, Floats, Profile, Recorded
from zenc.gradients.profile_fit import by_range, fitted, misfit, ranges_for
from zenc.plan.expressions import Ints
from zenc.wire.constants import GOLDEN
from zenc.wire.mix import mix

_HITS = 128
"""Units of a range that all samples together should hold, for its density to be known within a tenth."""
_MOST_POOLED = 4096
"""Ranks that steps are taken for, at most: beyond, rare units stay rare."""


def sample_ids(units: int, most: int) -> Ints:
    """The units that are looked at, [min(units, most)] int64, ascending; the same on all ranks."""
    if units <= most:
        return np.arange(units)
    mixed = mix(np.arange(1, most + 1, dtype=np.uint64) * np.uint64(GOLDEN))
    places = (np.arange(most) + (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53) * (units / most)
    return np.asarray(np.minimum(places.astype(np.int64), units - 1))


class HolderCounts:
    """Counts of holders of the gradient ``name`` on ``size`` ranks, over the steps that were added."""

    def __init__(self, name: str, units: int, width: int, dtype: str, size: int, most: int) -> None:
        self.name, self.units, self.width, self.dtype, self.size = name, units, width, dtype, size
        self.ids = sample_ids(units, most)
        self.steps = 0
        self._ranges = ranges_for(len(self.ids), MOST_RANGES)
        self._histogram: Floats = np.zeros((self._ranges, size + 1))
        self._pooled_steps = 0
        self._held = np.zeros(len(self.ids), dtype=np.int64)
        self._bytes: Floats = np.zeros(2)

    def add(self, holders: Ints, bytes_sent: Ints) -> None:
        """A step: how many ranks held each unit of the sample [s], and the bytes that each rank sent [size]."""
        self.steps += 1
        self._histogram += by_range(holders, self.size, self._ranges)
        if (self._pooled_steps + 1) * self.size <= _MOST_POOLED:
            self._pooled_steps += 1
            self._held += holders
        self._bytes += bytes_sent.mean(), bytes_sent.max()

    def profile(self) -> Profile:
        """The profile of all steps so far, of which there is one at least; raises CostError (``bad-profile``)."""
        ranges = min(self._ranges, ranges_for(self.units, int(self._held.sum()) // _HITS))
        histogram = self._histogram.reshape(ranges, -1, self.size + 1).sum(axis=1)
        pooled = self._pooled(ranges)
        profile = fitted(self.name, self.units, self.width, self.dtype, histogram, pooled)
        mean, busiest = (self._bytes / self.steps).tolist()
        recorded = Recorded(self.steps, len(self.ids), misfit(profile, histogram), mean, busiest)
        return profile.with_record(recorded)

    def state(self) -> dict[str, Any]:
        """All that was counted, and what of; arrays are numpy's."""
        arrays = {"histogram": self._histogram, "held": self._held, "bytes": self._bytes}
        counts = {"steps": self.steps, "pooled_steps": self._pooled_steps, "sampled": len(self.ids)}
        shape = {name: getattr(self, name) for name in ("name", "units", "width", "dtype", "size")}
        return {**shape, **counts, **{name: array.copy() for name, array in arrays.items()}}

    @staticmethod
    def of_state(state: Mapping[str, Any]) -> HolderCounts:
        """The accumulator of a ``state``; raises KeyError, TypeError or ValueError for anything else."""
        shape = str(state["name"]), int(state["units"]), int(state["width"]), str(state["dtype"]), int(state["size"])
        tally = HolderCounts(*shape, int(state["sampled"]))
        for name, own in (("histogram", tally._histogram), ("held", tally._held), ("bytes", tally._bytes)):
            array = np.asarray(state[name])
            if array.shape != own.shape:
                raise ValueError(f"its {name} is of another shape")
            own[:] = array
        tally.steps, tally._pooled_steps = int(state["steps"]), int(state["pooled_steps"])
        return tally

    def _pooled(self, ranges: int) -> Floats | None:
        """The histogram as if all steps had been one step of more ranks: each rank's batch is another every time."""
        ranks = self.size * self._pooled_steps
        return by_range(self._held, ranks, ranges) if ranks > self.size else None
