"""Axes that read as people speak: 2, 4, 8 ranks, 10 ms, 1 %, 100 Mbit/s; never powers of two or ten."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from zenc.format_units import seconds_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

Words = Callable[[float], str]

MOST_TICKS = 9
_STEPS = ((1.0, 3.0), (1.0, 2.0, 5.0))
"""Of each decade, from the coarsest."""
_CLOSE = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
"""Steps within a decade, for ranges that are not much longer than one."""


def round_values(low: float, high: float) -> list[float]:
    """A few round numbers, nine or so at most, from ``low`` to ``high``, which are above 0; for a logarithmic axis."""
    every = max(1, math.ceil(math.log10(high / low) / (MOST_TICKS - 2)))
    found = _of_decades(low, high, (1.0,), every)
    for steps in _STEPS if every == 1 else ():
        finer = _of_decades(low, high, steps)
        found = finer if len(finer) <= MOST_TICKS else found
    found = found if len(found) > 2 else _of_decades(low, high, _CLOSE)
    return found if len(found) > 1 else [low, high]


def _of_decades(low: float, high: float, steps: Sequence[float], every: int = 1) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1, every)
    values = (float(f"{step:g}e{decade}") for decade in decades for step in steps)
    return [value for value in values if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]


def spread_out(values: Iterable[float]) -> list[float]:
    """Of ``values`` > 0 the ends, and those between that are far enough from the one before to be read."""
    ordered = sorted(set(values))
    if len(ordered) < 3:
        return ordered
    room = math.log(ordered[-1] / ordered[0]) / MOST_TICKS
    kept = ordered[:1]
    for x in ordered[1:-1]:
        if math.log(x / kept[-1]) >= room and math.log(ordered[-1] / x) >= room:
            kept.append(x)
    return [*kept, ordered[-1]]


def logarithmic(axes: Axes, which: Literal["x", "y"], ticks: Sequence[float], words: Words) -> None:
    """Make one of the ``axes`` logarithmic, with ``ticks`` and no others."""
    from matplotlib.ticker import NullLocator

    axes.set(**{f"{which}scale": "log"})
    axis: Axis = getattr(axes, f"{which}axis")
    axis.set_ticks(ticks, [words(tick) for tick in ticks])
    axis.set_minor_locator(NullLocator())


def logarithmic_seconds(axes: Axes, values: Iterable[float]) -> None:
    """Upright, with room around ``values``; those of 0 or less are left out."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = min(positive) / 1.25, max(positive) * 1.25
    logarithmic(axes, "y", round_values(low, high), seconds_text)
    axes.set_ylim(low, high)


def linear(axis: Axis, words: Words, most: int = 6) -> None:
    """A linear axis from 0 with at most ``most`` steps, in ``words``."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: words(value) if value else "0"))
