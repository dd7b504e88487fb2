"""Curves of seconds over ranks, density or bandwidth, and of what kernels take, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from zenc.draw.colour import distinct
from zenc.draw.plots.axes import Words, logarithmic, logarithmic_seconds, round_values, spread_out
from zenc.draw.plots.figure import as_svg
from zenc.format_units import share_text
from zenc.simulator.calibration import Calibration
from zenc.topology.units import bits_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

    Curves = Mapping[str, tuple[Sequence[float], Sequence[float]]]

OVER: Mapping[str, tuple[str, Words]] = {
    "ranks": ("ranks", lambda ranks: f"{ranks:,.0f}"),
    "density": ("share of the units that a rank holds", share_text),
    "bandwidth": ("bandwidth of a rank, each way", bits_text),
}
"""Quantity that varies -> words of its axis, and of a value."""
_MARKS = "os^Dv<>Ph*Xd"


def svg(curves: Curves, over: str, title: str, fixed: str) -> str:
    """The text of an SVG file with one curve for each name, both axes logarithmic.

    Raises CostError (``plots-missing``) where matplotlib is not installed.
    """

    def draw(figure: FigureBase) -> None:
        axes, (label, words) = figure.add_subplot(), OVER[over]
        _lines(axes, curves, _MARKS)
        logarithmic(axes, "x", spread_out(x for xs, _ in curves.values() for x in xs), words)
        logarithmic_seconds(axes, (y for _, ys in curves.values() for y in ys))
        axes.set(xlabel=label, ylabel="time")

    return as_svg(draw, 8.4, _height(len(curves)), title, fixed)


def of_kernels(found: Calibration) -> str:
    """The text of an SVG file: what each kernel takes of ten million slots, by the share of them that is occupied.

    The bytes of values count for nothing. Raises CostError (``plots-missing``) where matplotlib is not installed.
    """
    shares, slots = np.geomspace(1e-4, 0.3, 40), np.full(40, 1e7)
    curves = {
        name: (shares.tolist(), each.each(shares * slots, 0.0, slots).tolist()) for name, each in found.kernels.items()
    }

    def draw(figure: FigureBase) -> None:
        axes = figure.add_subplot()
        _lines(axes, curves, [""])
        logarithmic(axes, "x", round_values(1e-4, 0.3), share_text)
        logarithmic_seconds(axes, (y for _, ys in curves.values() for y in ys))
        axes.set(xlabel="share of the slots that is occupied", ylabel="time")

    fixed = "10 million slots; without the bytes of values, which each kernel moves at a speed of its own."
    return as_svg(draw, 8.4, _height(len(curves)), f"What kernels take, by density: calibration {found.name}", fixed)


def _height(lines: int) -> float:
    """In inches, such that the legend has room."""
    return max(4.8, 1.0 + 0.2 * lines)


def _lines(axes: Axes, curves: Curves, marks: Sequence[str]) -> None:
    """A curve in a colour of its own for each name; the legend lists them as they lie at the right, from the top."""
    colours = distinct(len(curves))
    for number, ((name, (xs, ys)), colour) in enumerate(zip(curves.items(), colours, strict=True)):
        axes.plot(xs, ys, label=name, color=colour, marker=marks[number % len(marks)], markersize=4.5, linewidth=1.6)
    axes.grid(True)
    last = [ys[-1] for _, ys in curves.values()]
    handles, names = axes.get_legend_handles_labels()
    order = sorted(range(len(names)), key=lambda place: -last[place])
    axes.legend([handles[k] for k in order], [names[k] for k in order], loc="center left", bbox_to_anchor=(1, 0.5))
