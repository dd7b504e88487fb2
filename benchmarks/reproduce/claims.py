"""Statements of the paper that a model can be asked about: where schemes cross over, and what hashing loses.

Each is computed twice where that is possible, from a formula and by drawing, so that neither has to be believed.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log2

import numpy as np

from zenc.gradients.profile_generators import zipf

Gamma = Callable[[float], float]

SIZES = (2, 4, 8, 16, 32, 64, 128)
ITEMS = 200_000


def random_subset(q: float) -> Gamma:
    """Return gamma^k where every rank draws from the same units, and two overlap by ``q``."""
    return lambda k: (1 - (1 - q) ** k) / q


def common_core(q: float) -> Gamma:
    """Return gamma^k where all ranks share ``q`` of their units, and the rest of them is nobody else's."""
    return lambda k: q + (1 - q) * k


def hierarchical(gamma: Gamma, n: int) -> float:
    """Return the volume of Hierarchical Centralization over 2 d M (equation 2)."""
    return sum(gamma(2**i) for i in range(int(log2(n))))


def balanced(gamma: Gamma, n: int) -> float:
    """Return the volume of Balanced Parallelism over 2 d M (equation 1)."""
    return (n - 1) / n * (gamma(n) + 1)


def crossover(model: Callable[[float], Gamma], n: int) -> float | None:
    """Return the overlap from which on Balanced Parallelism sends less on ``n`` ranks; None where it never does."""

    def gain(q: float) -> float:
        return hierarchical(model(q), n) - balanced(model(q), n)

    return root(gain, 1e-9, 1.0) if gain(1.0) > 1e-9 else None


def behind_by(model: Callable[[float], Gamma], n: int, share: float) -> float:
    """Return the overlap with which AGsparse, (n - 1) 2 d M, is behind Hierarchical Centralization by ``share``."""
    return root(lambda q: (n - 1) / hierarchical(model(q), n) - 1 - share, 1e-9, 1.0)


def crossover_of_zipf(n: int, density: float = 1e-3, units: int = 1_000_000) -> float | None:
    """Return the crossover where words are drawn by Zipf's law, whose exponent decides about the overlap.

    Ranks that draw evenly overlap by the density already, and there is nothing below.
    """

    def gain(exponent: float) -> float:
        gamma = zipf(density, exponent, units).densification
        return hierarchical(lambda k: float(gamma(k)), n) - balanced(lambda k: float(gamma(k)), n)

    if gain(4.0) <= 0:
        return None
    exponent = 0.0 if gain(0.0) > 0 else root(gain, 0.0, 4.0)
    return zipf(density, exponent, units).overlap


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the place where an increasing function passes 0, by bisection."""
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (low, middle) if function(middle) > 0 else (middle, high)
    return (low + high) / 2


def lost(load: float) -> float:
    """Return the share of items that a hash into items / ``load`` slots overwrites: 1 - (1 - e^-load) / load."""
    return 1 - (1 - exp(-load)) / load


def load_that_loses(share: float) -> float:
    """Return the load at which a hash overwrites ``share`` of the items."""
    return root(lambda load: lost(load) - share, 1e-6, 2.0)


def lost_drawn(load: float, seed: int = 0) -> float:
    """Return the lost share as drawn: of ITEMS items in random slots, all but one in each slot are lost."""
    slots = np.random.default_rng(seed).integers(round(ITEMS / load), size=ITEMS)
    return 1 - len(np.unique(slots)) / ITEMS


def overflow(load: float, functions: int) -> float:
    """Return the share of items without a slot by ``functions`` hash functions; all try the first, then the second...

    Into each free slot goes one of those that meet there: of u items a slot, f (1 - e^-u) of the free slots f fill up.
    """
    free, left = 1.0, load
    for _ in range(functions):
        placed = free * (1 - exp(-left))
        free, left = free - placed, left - placed
    return left / load


def overflow_in_turn(load: float, functions: int, steps: int = 20_000) -> float:
    """Return the overflow when items come in turn: one is placed unless all its slots, of which x are full, are."""
    full, step = 0.0, load / steps
    for _ in range(steps):
        ahead = full + step / 2 * (1 - full**functions)
        full += step * (1 - ahead**functions)
    return (load - full) / load


def overflow_drawn(load: float, functions: int, seed: int = 0) -> float:
    """Return ``overflow``, drawn."""
    random = np.random.default_rng(seed)
    slots = round(ITEMS / load)
    taken, left = np.zeros(slots, dtype=bool), ITEMS
    for _ in range(functions):
        tried = np.unique(random.integers(slots, size=left))
        placed = tried[~taken[tried]]
        taken[placed] = True
        left -= len(placed)
    return left / ITEMS
