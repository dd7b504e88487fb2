"""Gradients drawn at random, as numbers describe them: density, skew, overlap.

Every rank holds round(density * units) units, drawn without putting back and independently of the others

    uniform   from all units, or with ``overlap`` q from the first density / q of them: of the units of one rank
              another one holds the share q on average (the random-subset model: gamma^k = (1 - (1 - q)^k) / q)
    zipf s    unit i with a weight of 1 / (i + 1)^s, as words of a corpus: low units are hot, so contiguous parts
              are skewed
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import numpy as np

from zenc.gradients.index_sets import Gradients, ensure, gradients, too_large, unsound_tensor
from zenc.plan.expressions import Ints


@dataclass(frozen=True, slots=True)
class GradientSpec:
    """The parameters of random gradients, for a tensor of ``units`` of ``width`` values of ``dtype``."""

    units: int
    width: int
    dtype: str
    density: float
    zipf: float | None = None
    overlap: float | None = None
    seed: int = 0


def drawn(load: GradientSpec, size: int) -> Gradients:
    """Gradients of ``size`` ranks; raises SchemeError (``bad-load``) for numbers that can't be."""
    ensure([*_unsound(load), *too_large(load.units, size)])
    count = round(load.units * load.density)
    pool = min(round(count / load.overlap), load.units) if load.overlap else load.units
    held = [_units(pool, count, load.zipf, np.random.default_rng([load.seed, rank])) for rank in range(size)]
    return gradients(load.units, load.width, load.dtype, held)


def source_of(load: GradientSpec) -> str:
    """The origin of the gradients of ``load``, in words."""
    how = f"by Zipf's law with exponent {load.zipf:g}" if load.zipf else "at random"
    pool = f" from {min(1.0, load.density / load.overlap):.3g} of the units" if load.overlap else ""
    return f"drawn {how}{pool}, seed {load.seed}"


def _unsound(load: GradientSpec) -> list[tuple[bool, str]]:
    density, zipf, overlap = load.density, load.zipf, load.overlap
    return [
        (not 0 <= density <= 1, f"a density is between 0 and 1, not {density}"),
        (zipf is not None and not 0 <= zipf <= 100, f"an exponent of Zipf's law is between 0 and 100, not {zipf}"),
        (overlap is not None and not 0 < overlap <= 1, f"an overlap is above 0 and at most 1, not {overlap}"),
        (zipf is not None and overlap is not None, "zipf decides how far ranks overlap: give one of the two"),
        (
            overlap is not None and isfinite(density) and 0 < overlap < density <= 1,
            f"ranks that hold {density:.4g} of the units share that much at least, and can't overlap by {overlap}",
        ),
        (not 0 <= load.seed < 1 << 64, f"a seed is 0 to 2^64 - 1, not {load.seed}"),
        *unsound_tensor(load.units, load.width, load.dtype),
    ]


def _units(pool: int, count: int, zipf: float | None, random: np.random.Generator) -> Ints:
    """``count`` of ``pool`` units. Weighted ones by the greatest of log(weight) + Gumbel noise (Yellott, 1977)."""
    if not 0 < count < pool:
        return np.arange(min(count, pool))
    if not zipf:
        return random.choice(pool, count, replace=False, shuffle=False)
    keys = random.gumbel(size=pool) - zipf * np.log(np.arange(1, pool + 1))
    return np.argpartition(keys, pool - count)[pool - count :]
