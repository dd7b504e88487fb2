"""Curves of seconds over ranks, density or bandwidth, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from zenc.cost.plots import as_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELS = {
    "ranks": "ranks",
    "density": "density of a rank's gradient",
    "bandwidth": "bandwidth of a rank, bytes a second each way",
}
_MARKS = "os^Dv<>Ph*Xd"


def svg(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], over: str, title: str) -> str:
    """The text of an SVG file with one curve for each name, both axes logarithmic.

    Raises CostError (``plots-missing``) where matplotlib is not installed.
    """

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for number, (name, (xs, ys)) in enumerate(curves.items()):
            axes.plot(xs, ys, label=name, marker=_MARKS[number % len(_MARKS)], markersize=4, linewidth=1.5)
        axes.set(xscale="log", yscale="log", xlabel=LABELS[over], ylabel="seconds", title=title)
        if over == "ranks":
            axes.set_xscale("log", base=2)
        axes.grid(True, which="major", alpha=0.3)
        axes.legend(frameon=False, fontsize=9)

    return as_svg(draw, 8, 5)
