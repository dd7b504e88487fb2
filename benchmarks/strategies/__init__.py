"""Published results of strategies, computed again: Espresso, MergeComp, TopKA2A, OSCAR and BytePS's compressors.

Here are parts of the page's sections: their heads, and cells that say whether something published agrees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

TOLERANCE = 1.25
"""Ratios agree that are no further apart; fixed before anything was computed."""
Results = dict[str, Any]
Row = dict[str, Any]


def section(head: str, about: str, *rest: str) -> str:
    """Return a part of the page: its head, a text ``about`` it, and its tables."""
    return "\n\n".join((f"## {head}", about, *rest))


def agrees(computed: float, said: float) -> bool:
    """Return whether the computed and the published number are no further apart than TOLERANCE."""
    return 1 / TOLERANCE <= computed / said <= TOLERANCE


def agreement(computed: float, said: float | None) -> str:
    """Return ``yes``, or ``no`` and by how much; an empty text where nothing is published."""
    if said is None:
        return ""
    return "yes" if agrees(computed, said) else f"no, {computed / said:.2f} times"


def published(value: float | None) -> str:
    """Return a number to two digits after the point; an empty text where nothing is published."""
    return "" if value is None else f"{value:.2f}"


def span(values: Sequence[float]) -> str:
    """Return the text of a span from the least value to the greatest."""
    return f"{min(values):.2f} to {max(values):.2f}"
