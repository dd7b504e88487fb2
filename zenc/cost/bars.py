"""Seconds of several schemes beside one another, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zenc.cost.plots import as_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Bar:
    """``note`` stands behind it."""

    name: str
    seconds: float
    note: str


def svg(bars: Sequence[Bar], title: str) -> str:
    """The text of an SVG file with one bar for each scheme, the first on top.

    Raises CostError (``plots-missing``) where matplotlib is not installed.
    """

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        drawn = axes.barh([bar.name for bar in bars], [bar.seconds for bar in bars], height=0.6)
        axes.bar_label(drawn, [bar.note for bar in bars], padding=4, fontsize=8)
        axes.invert_yaxis()
        axes.margins(x=0.3)
        axes.set(xlabel="seconds", title=title)
        axes.spines[["top", "right"]].set_visible(False)

    return as_svg(draw, 9, 1.2 + 0.4 * len(bars))
