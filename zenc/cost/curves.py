"""Curves of seconds over ranks, density or bandwidth, and of what kernels take, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from zenc.cost.calibration import Calibration
from zenc.cost.plots import as_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELS = {
    "ranks": "ranks",
    "density": "density of a rank's gradient",
    "bandwidth": "bandwidth of a rank, bytes a second each way",
}
_MARKS = "os^Dv<>Ph*Xd"
_COLOURS = 5
"""Lines before the second style."""


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


def of_kernels(found: Calibration) -> str:
    """The text of an SVG file: what each kernel takes of ten million slots, by the share of them that is occupied.

    The bytes of values count for nothing. Raises CostError (``plots-missing``) where matplotlib is not installed.
    """
    shares, slots = np.geomspace(1e-4, 0.3, 40), np.full(40, 1e7)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for number, (name, kernel) in enumerate(found.kernels.items()):
            style = "-" if number < _COLOURS else "--"
            axes.plot(shares, kernel.each(shares * slots, 0.0, slots) * 1e3, style, label=name, linewidth=1.5)
        axes.set(xscale="log", yscale="log", xlabel="share of 10 million slots that is occupied", ylabel="ms")
        axes.set_title(f"What kernels take: {found.name}")
        axes.grid(True, which="major", alpha=0.3)
        axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))

    return as_svg(draw, 8, 5)
