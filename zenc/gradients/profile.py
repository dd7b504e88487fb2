"""Sparsity profiles: the distribution of the probability that a rank holds a unit, for any number of ranks.

    Profile = name units width dtype ranks? Range+          # equal contiguous ranges of the units, which carry the skew
    Range   = (probability share)+                          # the share of its units that a rank holds so likely
    Recorded = steps, units looked at, the misfit of the model, bytes of a call       # of a profile from a run

Each rank holds a unit with the unit's own probability p, independently of the others; a profile is the distribution
of p. The sum of k ranks then holds the unit with 1 - (1 - p)^k. Zen's three characteristics (OSDI 2025, section 2.3)
follow: the overlap of two ranks, the densification gamma^k = d_k / d, and the skewness. Equally likely units overlap by
chance; a few hot units beside many rare ones overlap more, for the same density.

The model leaves out ranks that avoid each other. Units that no two ranks share are taken as very rare ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import expm1, inf, isfinite, log1p
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from zenc.common.json_codec import Codec
from zenc.errors import CostError, Diagnostic
from zenc.wire.constants import DTYPE_BYTES

Floats: TypeAlias = npt.NDArray[np.float64]
Range: TypeAlias = tuple[tuple[float, float], ...]

MOST_RANGES = 256
MOST_CLASSES = 1024
"""Most classes of one range; a histogram of the holders among 1,024 ranks has no more."""
MOST_UNITS = 1 << 62
TOLERANCE = 1e-6
"""The tolerance for the shares of a range to sum to 1, for rounded decimals."""
_NEVER_ABSENT = -1e6
"""Stands for log(0): e^-1000000 is 0, and unlike infinity it can be multiplied by 0."""


@dataclass(frozen=True, slots=True)
class _Table:
    """The classes of all ranges, one after another: [classes], and the start of each range; [ranges]."""

    probability: Floats
    absent: Floats
    share: Floats
    starts: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Recorded:
    """The recording behind a profile: ``steps`` steps, in which ``units`` were sampled.

    ``misfit`` is the greatest relative difference of a d_k from the counted one. ``bytes_mean`` and ``bytes_busiest``:
    the bytes that a rank sent in a call, headers included, on average and at most over the ranks; 0 if not counted.
    """

    steps: int
    units: int
    misfit: float
    bytes_mean: float = 0.0
    bytes_busiest: float = 0.0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Profile:
    """The distribution of how often ranks hold the ``units`` of ``width`` values of ``dtype`` of gradient ``name``.

    ``ranks`` is the number of ranks it was recorded on, None where it was not recorded. ``ranges`` are 1 to 256, each
    with its classes: pairs of a probability and the share of the range's units that have it; the shares of a range sum
    to 1. Numbers of ranks, ``k`` and ``n``, may be any from 0 up, also between integers where the answer is an array.

    Raises CostError (``bad-profile``) for impossible numbers.
    """

    name: str
    units: int
    width: int
    dtype: str
    ranks: int | None
    ranges: tuple[Range, ...]
    recorded: Recorded | None = None
    _table: _Table = field(init=False, repr=False)

    def __post_init__(self) -> None:
        complain(self.name, _unsound(self))
        probability, share = np.array([pair for range_ in self.ranges for pair in range_], dtype=np.float64).T
        with np.errstate(divide="ignore"):
            absent = np.maximum(np.log1p(-probability), _NEVER_ABSENT)
        starts = np.cumsum([0, *map(len, self.ranges[:-1])], dtype=np.int64)
        share /= np.repeat(np.add.reduceat(share, starts), [len(range_) for range_ in self.ranges])
        object.__setattr__(self, "_table", _Table(probability, absent, share, starts))

    def __reduce__(self) -> tuple[Any, ...]:
        return Profile, (self.name, self.units, self.width, self.dtype, self.ranks, self.ranges, self.recorded)

    def __repr__(self) -> str:
        source = f", recorded on {self.ranks} ranks" if self.ranks else ""
        return (
            f"<zenc.Profile {self.name}: {self.units} x {self.width} {self.dtype}, density {self.density:.3g}{source}>"
        )

    @property
    def unit_bytes(self) -> int:
        """The bytes of a unit's values."""
        return self.width * DTYPE_BYTES[self.dtype]

    @property
    def density(self) -> float:
        """The density d: the share of the units that one rank holds."""
        return self._mean(self._table.probability)

    def union(self, k: npt.ArrayLike) -> Floats:
        """Return d_k: the density of the sum of ``k`` ranks; of the shape of ``k``."""
        return np.asarray(self._by_range(k).mean(axis=-1))

    def union_between(self, first: npt.ArrayLike, last: npt.ArrayLike, k: npt.ArrayLike) -> Floats:
        """Return the density of the sum of ``k`` ranks among the units [first, last), 0 for no units; of their shape.

        ``first``, ``last`` (0 to ``units``) and ``k`` are broadcast against each other.
        """
        first, last, k = np.broadcast_arrays(*(np.asarray(each, dtype=np.float64) for each in (first, last, k)))
        kinds, row = np.unique(k, return_inverse=True)
        held = np.cumsum(self._by_range(kinds), axis=-1)
        below, row = np.concatenate([np.zeros((len(kinds), 1)), held], axis=-1), row.reshape(k.shape)
        scale = len(self.ranges) / self.units

        def until(unit: Floats) -> Floats:
            whole = np.minimum((unit * scale).astype(np.int64), len(self.ranges) - 1)
            start = below[row, whole]
            return np.asarray(start + (below[row, whole + 1] - start) * (unit * scale - whole))

        length = (last - first) * scale
        found = np.divide(until(last) - until(first), length, out=np.zeros(k.shape), where=length > 0)
        return np.asarray(np.clip(found, 0.0, 1.0))

    def holders(self, n: int) -> Floats:
        """Return the share of the units that exactly c of ``n`` ranks hold, for c = 0..n; [n + 1]."""
        found = np.zeros(n + 1)
        counts, logs = np.arange(n + 1), np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
        ways = logs[n] - logs[counts] - logs[n - counts]
        share = self._table.share / len(self.ranges)
        with np.errstate(divide="ignore"):
            present = np.maximum(np.log(self._table.probability), _NEVER_ABSENT)
        step = max(1, (1 << 20) // (n + 1))
        for some in (slice(start, start + step) for start in range(0, len(share), step)):
            likely = np.outer(present[some], counts) + np.outer(self._table.absent[some], n - counts)
            found += share[some] @ np.exp(ways + likely)
        return found

    def merged(self, ranks: int, parts: int) -> Profile:
        """Return the profile of one of ``parts`` over which units are spread evenly, as ``ranks`` hold it together."""
        together = tuple(tuple((-expm1(ranks * log1p(-p)) if p < 1 else 1.0, s) for p, s in of) for of in self.ranges)
        return replace(self, units=max(1, -(-self.units // parts)), ranges=together, ranks=None, recorded=None)

    def densification(self, k: npt.ArrayLike) -> Floats:
        """Return gamma^k = d_k / d: between 1 and k; 1 where nothing is held. It has the shape of ``k``."""
        density = self.density
        return np.asarray(self.union(k) / density) if density else np.ones(np.shape(k))

    @property
    def overlap(self) -> float:
        """The share of a rank's units that another one holds, too: |I1 & I2| / min(|I1|, |I2|); 0 without units."""
        density = self.density
        return self._mean(self._table.probability**2) / density if density else 0.0

    def skewness(self, n: int) -> float:
        """Return the density of the densest of ``n`` equal contiguous parts, over that of all: 1 (even) to ``n``."""
        density, edges = self.density, np.linspace(0, self.units, n + 1)
        return float(self.union_between(edges[:-1], edges[1:], 1).max()) / density if density else 1.0

    def blocks(self, k: npt.ArrayLike, block: int) -> Floats:
        """Return the share of the blocks of ``block`` units in which any of ``k`` ranks holds a unit.

        The result has the shape of ``k``.

        It is an estimate: the probabilities of neighbours are taken as drawn from those of their range. Where units of
        one probability stand together within a range, fewer blocks are held.
        """
        empty = 1.0 - self._by_range(k)
        return np.asarray((1.0 - empty ** min(block, self.units)).mean(axis=-1))

    def to_json(self) -> dict[str, Any]:
        """Return JSON data, as ``zenc.gradients.profile_io`` writes and reads it."""
        found: dict[str, Any] = Codec().encode(self)
        found["ranges"] = found.pop("ranges")  # at the end, where they take most lines
        return found

    def _mean(self, value: Floats) -> float:
        return float(self._table.share @ value) / len(self.ranges)

    def _by_range(self, k: npt.ArrayLike) -> Floats:
        """Return d_k of each range; [..., ranges] for ``k`` of [...]."""
        table, k = self._table, np.asarray(k, dtype=np.float64)
        held = table.share * -np.expm1(k[..., None] * table.absent)
        return np.asarray(np.minimum(np.add.reduceat(held, table.starts, axis=-1), 1.0))


def complain(name: str, problems: list[tuple[bool, str]]) -> None:
    """Raise CostError (``bad-profile``) about the profile ``name`` with all messages whose condition holds."""
    found = [Diagnostic("bad-profile", f"profile '{name}': {message}") for wrong, message in problems if wrong]
    if found:
        raise CostError(found)


def _unsound(of: Profile) -> list[tuple[bool, str]]:
    record = of.recorded or Recorded(1, 1, 0.0)
    figures = record.misfit, record.bytes_mean, record.bytes_busiest
    is_sound = record.steps >= 1 and record.units >= 1 and all(0 <= figure < inf for figure in figures)
    return [
        (not 1 <= of.units <= MOST_UNITS, f"{of.units} units; a profile has 1 to 2^62"),
        (not 1 <= of.width <= MOST_UNITS, f"{of.width} values in a unit; there is 1 at least"),
        (of.dtype not in DTYPE_BYTES, f"unknown dtype {of.dtype!r}; one of {', '.join(DTYPE_BYTES)}"),
        (of.ranks is not None and of.ranks < 1, f"recorded on {of.ranks} ranks; leave it out if it was not recorded"),
        (not 1 <= len(of.ranges) <= MOST_RANGES, f"{len(of.ranges)} ranges; a profile has 1 to {MOST_RANGES}"),
        (not is_sound, "what it was recorded from holds numbers that can't be"),
        *_unsound_ranges(of.ranges[:MOST_RANGES])[:3],
    ]


def _unsound_ranges(ranges: tuple[Range, ...]) -> list[tuple[bool, str]]:
    found = []
    for number, classes in enumerate(ranges):
        probabilities, total = [p for p, _ in classes], sum(share for _, share in classes)
        if not 1 <= len(classes) <= MOST_CLASSES:
            found.append((True, f"range {number} has {len(classes)} classes, not 1 to {MOST_CLASSES}"))
        elif not all(0 <= p <= 1 for p in probabilities):  # which NaN is not either
            found.append((True, f"range {number} has a probability that is not between 0 and 1"))
        elif not all(isfinite(share) and share >= 0 for _, share in classes) or abs(total - 1) > TOLERANCE:
            found.append((True, f"the shares of range {number} are not 0 or more with the sum 1, but {total:g}"))
    return found
