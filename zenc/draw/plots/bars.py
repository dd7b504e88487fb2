"""Seconds of several schemes beside one another, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zenc.draw.colour import distinct
from zenc.draw.plots.figure import as_svg, linear
from zenc.format_units import seconds_text
from zenc.select.search import TunedScheme, profile_text

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

MOST_GRADIENTS = 3
"""That are told below the title."""


@dataclass(frozen=True, slots=True)
class Bar:
    """``note`` stands at the right, in a column."""

    name: str
    seconds: float
    note: str


def of_tuned(found: TunedScheme) -> str:
    """The best schemes of a search, the text of an SVG file; raises CostError (``plots-missing``)."""
    title = f"The best of {found.tried} schemes, by predicted time of a call"
    gradients = " ".join(profile_text(profile, found.size) for profile in found.profiles[:MOST_GRADIENTS])
    fixed = f"{found.size} ranks on {found.where}. {gradients}{' Not calibrated.' if found.note else ''}"
    return svg([Bar(each.draft.label, each.seconds, each.figures) for each in found.best], title, fixed)


def svg(bars: Sequence[Bar], title: str, fixed: str) -> str:
    """The text of an SVG file with one bar for each scheme, the first on top.

    Raises CostError (``plots-missing``) where matplotlib is not installed.
    """
    (colour,) = distinct(1)

    def draw(figure: FigureBase) -> None:
        axes = figure.add_subplot()
        lines = range(len(bars))
        axes.barh(lines, [bar.seconds for bar in bars], height=0.62, color=colour)
        axes.set_yticks(lines, [bar.name for bar in bars])
        axes.set_ylim(len(bars) - 0.5, -0.5)
        axes.set_xlim(0, max(bar.seconds for bar in bars) * 1.04 or 1)
        axes.set_xlabel("time of a call")
        linear(axes.xaxis, seconds_text)
        axes.grid(axis="x")
        axes.tick_params(axis="y", length=0)
        axes.spines["bottom"].set_visible(False)
        notes = axes.secondary_yaxis("right")  # labels of ticks: the layout keeps room for them
        notes.set_yticks(lines, [bar.note for bar in bars], fontsize=9)
        notes.tick_params(axis="y", length=0)
        notes.spines["right"].set_visible(False)

    return as_svg(draw, 9.6, 1.1 + 0.36 * len(bars), title, fixed)
