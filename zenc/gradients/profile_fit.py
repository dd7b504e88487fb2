"""Profiles of recorded gradients: a distribution of probabilities that explains the numbers of holders of units.

    Sample      = units, ids [s] ascending                       # all units where there are few
    HolderCounts = a Sample, steps that were counted, and the holders of each unit

    histogram [ranges, n + 1] = in each range of the units, the number of them that c of n ranks hold
    d_k = the units that k of the n ranks hold together, on average over all choices of k ranks
    profile                   = shares of probabilities on a logarithmic grid, with the d_k nearest to those counted

The shares are found by non-negative least squares (Lawson and Hanson, Solving Least Squares Problems, 1974, chapter
23), range by range, on relative errors. The units of n ranks say little about units that many more ranks hold seldom:
d_k for k far above n is an extrapolation. Where T steps were recorded, they are taken for a step of n T ranks to see
further, if batches of other steps differ as those of other ranks do: that is, if d_1 to d_n say so.

A sample has one unit of each of s equal neighbourhoods, at a place by a hash of its number: so neighbourhoods and
ranges are sampled evenly, without following a regularity of the units. All ranks take the same units without
communication.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from zenc.gradients.index_sets import Gradients
from zenc.gradients.profile import MOST_RANGES, Floats, Profile, Range, Recorded, complain
from zenc.plan.expressions import Ints, Mask
from zenc.wire.constants import GOLDEN
from zenc.wire.mix import mix

_GRID = np.concatenate([[0.0], np.geomspace(1e-7, 0.5, 110), 1 - np.geomspace(0.47, 1e-3, 30), [1.0]]).round(9)
_CURVE = 24
"""Numbers of ranks up to which each d_k is fitted; of more, 48 at most."""
_HITS = 128
"""Units of a range that all ranks together should hold, for its density to be known within a tenth."""
_ROUNDS = 3
"""Rounds against the bias of chance errors of ranges, which add up where they can't be explained: the next one aims
beside it."""
_ALIKE = 0.03
"""The greatest distance of the d_k of steps from those of ranks with which steps are taken for ranks."""
_SUM_WEIGHT, _DENSITY_WEIGHT = 1e3, 1e2
"""Weights of the sum of shares, which is 1 by definition, and of the density, which is known best, against the error of
a d_k."""


def from_gradients(of: Gradients, name: str = "recorded") -> Profile:
    """Return the profile of recorded gradients; its ranges, up to 256, hold enough units for a reliable skew."""
    ranges = ranges_for(of.units, sum(map(len, of.held)) // _HITS)
    histogram = by_range(of.holders(), of.size, ranges)
    profile = fitted(name, of.units, of.width, of.dtype, histogram)
    return replace(profile, recorded=Recorded(1, of.units, misfit(profile, histogram)))


def ranges_for(units: int, most: int) -> int:
    """Return the number of ranges to tell apart: a power of two, so that parts of most groups are whole ranges."""
    return 1 << max(0, min(MOST_RANGES, units, most).bit_length() - 1)


def by_range(holders: Ints, n: int, ranges: int) -> Floats:
    """Return the histogram of ``holders`` [units], 0 to ``n``, in equal ranges; a unit on an edge counts in parts."""
    units = len(holders)
    if units % ranges == 0:
        at = holders.reshape(ranges, -1) + np.arange(ranges)[:, None] * (n + 1)
        return np.bincount(at.reshape(-1), minlength=ranges * (n + 1)).astype(np.float64).reshape(ranges, n + 1)
    start = np.arange(units) * (ranges / max(1, units))
    first = np.minimum(start.astype(np.int64), ranges - 1)
    inside = np.minimum(1.0, (first + 1 - start) * (units / ranges))
    both = np.concatenate([first, np.minimum(first + 1, ranges - 1)])
    at = both * (n + 1) + np.concatenate([holders, holders])
    counts = np.bincount(at, np.concatenate([inside, 1 - inside]), ranges * (n + 1))
    return np.asarray(counts, dtype=np.float64).reshape(ranges, n + 1)


def fitted(name: str, units: int, width: int, dtype: str, histogram: Floats, pooled: Floats | None = None) -> Profile:
    """Return the profile whose d_k come nearest to those of ``histogram`` [ranges, n + 1], for k = 1..n.

    Rows may be counts of a sample of each range's units, over any number of steps. ``pooled`` [ranges, m + 1] has the
    same units and ranges, held by m > n ranks: k = n + 1..m follow its curve, from d_n on, unless its d_1 to d_n
    differ. Raises CostError (``bad-profile``) for an impossible histogram.
    """
    n, total = histogram.shape[-1] - 1, histogram.sum(axis=-1)
    unsound = not (np.isfinite(histogram).all() and (histogram >= 0).all() and (total > 0).all()) or n < 1
    complain(name, [(unsound, "its histogram of holders has no units in some range, or a count that is none")])
    k = _numbers(n)
    counted = _curves(histogram, k)
    if pooled is not None and counted.any():
        further = _numbers(pooled.shape[-1] - 1)
        further = further[further > n]
        bridge = counted.mean(axis=0) / np.maximum(counted_union(pooled, k), 1e-300)
        if np.abs(bridge - 1).max() <= _ALIKE:
            beyond = np.minimum(_curves(pooled, further) * bridge[-1], 1)
            k, counted = np.append(k, further), np.append(counted, beyond, axis=1)
    aim = counted
    for _ in range(_ROUNDS):
        profile = Profile(name, units, width, dtype, n, tuple(_range(curve, k) for curve in aim))
        missed = counted.mean(axis=0) / np.maximum(profile.union(k), 1e-300)
        aim = np.minimum(aim * missed, 1.0)
    return profile


def counted_union(histogram: Floats, k: Ints) -> Floats:
    """Return d_k as counted: the units that ``k`` of n ranks hold on average over all choices of them; [k]."""
    return np.asarray(_curves(histogram, k).mean(axis=0))


def _curves(histogram: Floats, k: Ints) -> Floats:
    """Return d_k of each range; [ranges, k]."""
    shares = histogram / histogram.sum(axis=-1, keepdims=True)
    return np.asarray(shares @ _held_by(histogram.shape[-1] - 1, k).T)


def misfit(profile: Profile, histogram: Floats) -> float:
    """Return the greatest relative error of a d_k of ``profile`` to that of ``histogram`` [ranges, n + 1], k = 1..n."""
    k = _numbers(histogram.shape[-1] - 1)
    counted = counted_union(histogram, k)
    return float(np.abs(profile.union(k) / counted - 1).max()) if counted[0] else 0.0


def _numbers(n: int) -> Ints:
    """Return 1 to ``n``, or some of many."""
    if n <= _CURVE:
        return np.arange(1, n + 1)
    return np.unique(np.geomspace(1, n, 2 * _CURVE).round().astype(np.int64))


def _held_by(n: int, k: Ints) -> Floats:
    """Return the chance that one of ``k`` ranks, out of n, is among c holders; [k, n + 1]."""
    logs, holders = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))]), np.arange(n + 1)
    absent, chosen = n - holders[None, :], k[:, None]
    possible = absent >= chosen  # to choose k ranks that hold nothing
    left = np.where(possible, absent - chosen, 0)
    ways = logs[absent] - logs[left] - (logs[n] - logs[n - chosen])
    return np.asarray(1.0 - np.where(possible, np.exp(ways), 0.0))


def _range(curve: Floats, k: Ints) -> Range:
    """Return the classes of a range of which k ranks hold ``curve`` [k]; one if only one rank's share is known."""
    if len(k) == 1 or curve[0] in (0.0, 1.0):
        return ((float(curve[0]), 1.0),)
    grid = np.append(_GRID, curve[0])
    with np.errstate(divide="ignore"):
        held = 1.0 - (1.0 - grid[None, :]) ** k[:, None]
    weight = 1.0 / curve
    weight[0] *= _DENSITY_WEIGHT
    rows = np.concatenate([held * weight[:, None], np.full((1, len(grid)), _SUM_WEIGHT)])
    shares = nonnegative(rows, np.append(curve * weight, _SUM_WEIGHT))
    kept = shares > 0
    shares = (shares[kept] / shares[kept].sum()).round(12)
    return tuple(zip(grid[kept].tolist(), shares.tolist(), strict=True))


def nonnegative(matrix: Floats, target: Floats) -> Floats:
    """Return the x >= 0 [columns] with the least |matrix x - target| (Lawson and Hanson, 1974, chapter 23)."""
    columns = matrix.shape[1]
    found, free = np.zeros(columns), np.zeros(columns, dtype=bool)
    tolerance = 1e-12 * float(np.abs(matrix.T @ target).max())
    for _ in range(3 * columns):
        pull = matrix.T @ (target - matrix @ found)
        pull[free] = -np.inf
        best = int(pull.argmax())
        if pull[best] <= tolerance:
            break
        free[best] = True
        found = _feasible(matrix, target, found, free)
    return found


def _feasible(matrix: Floats, target: Floats, found: Floats, free: Mask) -> Floats:
    """Return the least squares on the ``free`` columns; those that would turn negative are fixed at 0 in turn."""
    while True:
        wanted = np.zeros(len(found))
        wanted[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
        wrong = free & (wanted <= 0)
        if not wrong.any():
            return wanted
        step = (found[wrong] / np.maximum(found[wrong] - wanted[wrong], 1e-300)).min()
        found = found + step * (wanted - found)
        free &= found > 1e-15
        found[~free] = 0.0


_MOST_POOLED = 4096
"""Most ranks that steps are taken for: beyond, rare units stay rare."""


def sample_ids(units: int, most: int) -> Ints:
    """Return the sampled units, [min(units, most)] int64, ascending; the same on all ranks."""
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
        """Add a step: how many ranks held each unit of the sample [s], and the bytes that each rank sent [size]."""
        self.steps += 1
        self._histogram += by_range(holders, self.size, self._ranges)
        if (self._pooled_steps + 1) * self.size <= _MOST_POOLED:
            self._pooled_steps += 1
            self._held += holders
        self._bytes += bytes_sent.mean(), bytes_sent.max()

    def profile(self) -> Profile:
        """Return the profile of all steps so far, at least one; raises CostError (``bad-profile``)."""
        ranges = min(self._ranges, ranges_for(self.units, int(self._held.sum()) // _HITS))
        histogram = self._histogram.reshape(ranges, -1, self.size + 1).sum(axis=1)
        ranks = self.size * self._pooled_steps  # as if all steps were one of more ranks, with another batch each
        pooled = by_range(self._held, ranks, ranges) if ranks > self.size else None
        profile = fitted(self.name, self.units, self.width, self.dtype, histogram, pooled)
        mean, busiest = (self._bytes / self.steps).tolist()
        recorded = Recorded(self.steps, len(self.ids), misfit(profile, histogram), mean, busiest)
        return replace(profile, recorded=recorded)

    def state(self) -> dict[str, Any]:
        """Return all counts, and their subject; arrays are numpy's."""
        arrays = {"histogram": self._histogram, "held": self._held, "bytes": self._bytes}
        counts = {"steps": self.steps, "pooled_steps": self._pooled_steps, "sampled": len(self.ids)}
        shape = {name: getattr(self, name) for name in ("name", "units", "width", "dtype", "size")}
        return {**shape, **counts, **{name: array.copy() for name, array in arrays.items()}}

    @staticmethod
    def of_state(state: Mapping[str, Any]) -> HolderCounts:
        """Return the counts of a ``state``; raises KeyError, TypeError or ValueError for anything else."""
        if not isinstance(state, Mapping):
            raise TypeError("it has no names")
        name, units, width, dtype, size = (state[key] for key in ("name", "units", "width", "dtype", "size"))
        arrays = {key: np.asarray(state[key]) for key in ("histogram", "held", "bytes")}
        if any(type(number) is not int or number < 1 for number in (units, width, size)):
            raise ValueError("its units, width or size is no count")
        if not 1 <= arrays["held"].size <= units or arrays["histogram"].shape[-1:] != (size + 1,):
            raise ValueError("its counts are of another shape")
        tally = HolderCounts(str(name), units, width, str(dtype), size, arrays["held"].size)
        for key, own in (("histogram", tally._histogram), ("held", tally._held), ("bytes", tally._bytes)):
            if arrays[key].shape != own.shape:
                raise ValueError(f"its {key} is of another shape")
            own[:] = arrays[key]
        tally.steps, tally._pooled_steps = int(state["steps"]), int(state["pooled_steps"])
        return tally
