"""Parameters of gradients: a tensor, and the units that ranks hold: by themselves the expected, or drawn ones.

Every rank holds round(density * units) units, drawn without putting back and independently of the others

    uniform   from all units, or with ``overlap`` q from the first density / q of them: another rank holds
              the share q of one rank's units on average (the random-subset model: gamma^k = (1 - (1 - q)^k) / q)
    zipf s    unit i with a weight of 1 / (i + 1)^s, as words of a corpus: low units are hot, so contiguous parts
              are skewed

``zenc.gradients.index_sets`` draws them.
"""

from __future__ import annotations

from dataclasses import dataclass


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


DEFAULT_GRADIENT = GradientSpec(1_000_000, 64, "f32", 0.01)


def source_of(load: GradientSpec) -> str:
    """Return the origin of the gradients of ``load``, in words."""
    how = f"by Zipf's law with exponent {load.zipf:g}" if load.zipf else "at random"
    pool = f" from {min(1.0, load.density / load.overlap):.3g} of the units" if load.overlap else ""
    return f"drawn {how}{pool}, seed {load.seed}"
