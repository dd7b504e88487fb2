"""A uniform gradient: units, width, dtype and density, for expected loads and memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UniformGradient:
    """An expected gradient: ``units`` of ``width`` values of ``dtype``, each held by a rank with chance ``density``."""

    units: int
    width: int
    dtype: str
    density: float


DEFAULT_GRADIENT = UniformGradient(1_000_000, 64, "f32", 0.01)
