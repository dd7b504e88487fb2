"""A gradient in four numbers, for which loads and memory are expected."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UniformGradient:
    """What a gradient is expected to be: ``units`` of ``width`` values of ``dtype``, ``density`` of them on a rank."""

    units: int
    width: int
    dtype: str
    density: float


DEFAULT_GRADIENT = UniformGradient(1_000_000, 64, "f32", 0.01)
