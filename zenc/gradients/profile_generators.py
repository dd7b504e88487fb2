"""Profiles from a few numbers: the density of gradients, and the overlap of ranks.

    uniform        every unit is as likely as any other; ranks overlap by the density
    zipf s         unit i has a weight of 1 / (i + 1)^s, as words of a corpus: low units are hot, the ends are skewed
    random_subset  every rank draws from the same density / q of the units, so that two of them overlap by q:
                   gamma^k = (1 - (1 - q)^k) / q
    common_core    all ranks hold the same share p of their units; the rest is their own:
                   gamma^k = p + (1 - p) k, while k ranks hold few of the units

``zenc.gradients.index_sets`` draws gradients of the first three.
"""

from __future__ import annotations

from math import inf, log

import numpy as np

from zenc.gradients.index_sets import unsound_density
from zenc.gradients.profile import MOST_RANGES, Floats, Profile, Range, complain

_FINE = 1.02
"""The ratio of neighbouring unit numbers that are taken as equally likely: d_k is right to 0.01 %."""


def uniform(density: float, units: int, width: int = 1, dtype: str = "f32", *, name: str = "uniform") -> Profile:
    """Return the profile of ranks that hold ``density`` of the units at random; raises CostError (``bad-profile``)."""
    complain(name, [unsound_density(density)])
    return Profile(name, units, width, dtype, None, (((density, 1.0),),))


def random_subset(
    density: float,
    overlap: float,
    units: int,
    width: int = 1,
    dtype: str = "f32",
    *,
    contiguous: bool = False,
    name: str = "random subset",
) -> Profile:
    """Return the profile of ranks that draw ``density`` of the units from a common subset, with ``overlap`` of two.

    The subset is spread evenly over the units, or ``contiguous``: the first units, as under ``zenc explain --overlap``.
    Raises CostError (``bad-profile``); an overlap is ``density`` at least.
    """
    wrong = not (0 < overlap <= 1 and overlap >= density)
    complain(name, [unsound_density(density), (wrong, f"an overlap is the density to 1, and above 0, not {overlap}")])
    pool = density / overlap
    if not contiguous:
        return Profile(name, units, width, dtype, None, (((overlap, pool), (0.0, 1.0 - pool)),))
    count = min(MOST_RANGES, max(1, units))
    inside = np.clip(pool * count - np.arange(count), 0.0, 1.0)
    return Profile(name, units, width, dtype, None, tuple(((overlap, s), (0.0, 1.0 - s)) for s in inside.tolist()))


def common_core(
    density: float, core: float, units: int, width: int = 1, dtype: str = "f32", *, name: str = "common core"
) -> Profile:
    """Return the profile of ranks with the share ``core`` of their units in common.

    Each draws the rest from all others.

    Two ranks overlap by ``core`` and what chance adds. Raises CostError (``bad-profile``).
    """
    complain(name, [unsound_density(density), (not 0 <= core <= 1, f"a core is 0 to 1 of a rank's units, not {core}")])
    always = density * core
    rest = (density - always) / (1.0 - always) if always < 1 else 0.0
    return Profile(name, units, width, dtype, None, (((1.0, always), (rest, 1.0 - always)),))


def zipf(
    density: float, exponent: float, units: int, width: int = 1, dtype: str = "f32", *, name: str = "zipf"
) -> Profile:
    """Return a profile of ranks that each draw ``density`` of the units by Zipf's law, unit 0 most often.

    A rank draws no unit twice. Drawing the units with the greatest log(weight) + Gumbel noise (Yellott, 1977) takes
    those above a threshold, which hardly varies among many units: unit i is held with 1 - exp(-t / (i + 1)^s), and t
    makes the mean ``density``. Raises CostError (``bad-profile``).
    """
    wrong = not 0 <= exponent <= 100
    complain(name, [unsound_density(density), (wrong, f"an exponent of Zipf's law is 0 to 100, not {exponent}")])
    if units < 1 or density in (0.0, 1.0) or not exponent:
        return uniform(density, units, width, dtype, name=name)
    count = min(MOST_RANGES, units)
    edges = np.arange(count + 1) * (units / count)
    # where the numbers of units have grown by _FINE: single units first, then ever more of them
    grown = np.floor(_FINE ** np.arange(0, int(log(units + 1) / log(_FINE)) + 2))
    cuts = np.union1d(edges, np.clip(grown - 1, 0, units))
    sizes, middles = np.diff(cuts), np.maximum((cuts[:-1] + cuts[1:] + 1) / 2, 1.0)  # numbered from 1
    probability = _inclusion(exponent * np.log(middles), sizes / units, density)
    of = np.searchsorted(edges, cuts[:-1], side="right") - 1
    ranges = tuple(_classes(probability[of == r], sizes[of == r] * count / units) for r in range(count))
    return Profile(name, units, width, dtype, None, ranges)


def _inclusion(log_rarity: Floats, share: Floats, density: float) -> Floats:
    """Return 1 - exp(-t / rarity), with t by bisection on log t such that the mean by ``share`` is ``density``."""
    low, high = float(log_rarity.min()) - 800, float(log_rarity.max()) + 800

    def probability(log_t: float) -> Floats:
        return np.asarray(-np.expm1(-np.exp(np.minimum(log_t - log_rarity, 700))))

    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if share @ probability(middle) > density else (middle, high)
    return probability((low + high) / 2)


def _classes(probability: Floats, share: Floats) -> Range:
    """Return the classes of one range; almost equally likely units are one class, whose mean keeps the density."""
    with np.errstate(divide="ignore"):
        kind = np.round(np.log(probability) / log(1.1))
    kind[kind == -inf] = -1e9
    kinds, of = np.unique(kind, return_inverse=True)
    total = np.bincount(of, share, len(kinds))
    mean = np.bincount(of, share * probability, len(kinds)) / total
    return tuple(zip(np.minimum(mean, 1.0).tolist(), total.tolist(), strict=True))
