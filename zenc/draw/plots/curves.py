"""Seconds as SVG: curves over ranks, density or bandwidth, and of kernels; bars of several schemes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from zenc.common.wording import seconds_text, share_text
from zenc.draw.colour import distinct
from zenc.draw.plots.figure import Words, as_svg, linear, logarithmic, logarithmic_seconds, round_values, spread_out
from zenc.gradients.profile import Profile
from zenc.scheme.units import bits_text
from zenc.select.search import TunedScheme, profile_text
from zenc.simulator.calibration import Calibration
from zenc.simulator.sweep import Point, Simulation, SweepPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase


OVER: Mapping[str, tuple[str, Words]] = {
    "ranks": ("ranks", lambda ranks: f"{ranks:,.0f}"),
    "density": ("share of the units that a rank holds", share_text),
    "bandwidth": ("bandwidth of a rank, each way", bits_text),
}
"""The varied quantity -> words of its axis, and of a value."""
_MARKS = "os^Dv<>Ph*Xd"
_FIELDS = {"ranks": "size", "density": "density", "bandwidth": "bandwidth"}
MOST_NAMED = 3
"""Gradients of a step that a title names."""
Curves: TypeAlias = Mapping[str, tuple[Sequence[float], Sequence[float]]]


def svg(curves: Curves, over: str, title: str, fixed: str) -> str:
    """Return the text of an SVG file with one curve for each name, both axes logarithmic.

    Raises CostError (``plots-missing``) where matplotlib is not installed.
    """
    ticks = spread_out(x for xs, _ in curves.values() for x in xs)
    return _svg(curves, _MARKS, ticks, *OVER[over], title, fixed)


def of_kernels(found: Calibration) -> str:
    """Return the text of an SVG file: the time of each kernel for ten million slots, by the share of occupied ones.

    The bytes of values count for nothing. Raises CostError (``plots-missing``) where matplotlib is not installed.
    """
    shares, slots = np.geomspace(1e-4, 0.3, 40), np.full(40, 1e7)
    curves = {
        name: (shares.tolist(), each.each(shares * slots, 0.0, slots).tolist()) for name, each in found.kernels.items()
    }
    ticks, label = round_values(1e-4, 0.3), "share of the slots that is occupied"
    fixed = "10 million slots; without the bytes of values, which each kernel moves at a speed of its own."
    return _svg(
        curves, [""], ticks, label, share_text, f"What kernels take, by density: calibration {found.name}", fixed
    )


def of_simulation(found: Simulation, places: Sequence[SweepPoint], over: str) -> str:
    """Return the text of an SVG file; ``over`` is ranks, density or bandwidth, and ``places`` are those simulated.

    Raises CostError (``plots-missing``) where matplotlib is not installed.
    """
    gradients = places[0].profiles
    what = "a call" if len(gradients) == 1 else f"a step's {len(gradients)} gradients"
    title = f"Predicted time of {what} by {'number of ranks' if over == 'ranks' else over}"
    return svg(curves_of(found.points, over), over, title, "; ".join(_fixed(places, _varied(found.points))))


def _svg(
    curves: Curves, marks: Sequence[str], ticks: Sequence[float], label: str, words: Words, title: str, fixed: str
) -> str:
    def draw(figure: FigureBase) -> None:
        axes = figure.add_subplot()
        _lines(axes, curves, marks)
        logarithmic(axes, "x", ticks, words)
        logarithmic_seconds(axes, (y for _, ys in curves.values() for y in ys))
        axes.set(xlabel=label, ylabel="time")

    return as_svg(draw, 8.4, max(4.8, 1.0 + 0.2 * len(curves)), title, fixed)  # the legend has room


def _lines(axes: Axes, curves: Curves, marks: Sequence[str]) -> None:
    """Draw a curve in a colour of its own for each name, and the legend in their order at the right."""
    colours = distinct(len(curves))
    for number, ((name, (xs, ys)), colour) in enumerate(zip(curves.items(), colours, strict=True)):
        axes.plot(xs, ys, label=name, color=colour, marker=marks[number % len(marks)], markersize=4.5, linewidth=1.6)
    axes.grid(True)
    last = [ys[-1] for _, ys in curves.values()]
    handles, names = axes.get_legend_handles_labels()
    order = sorted(range(len(names)), key=lambda place: -last[place])
    axes.legend([handles[k] for k in order], [names[k] for k in order], loc="center left", bbox_to_anchor=(1, 0.5))


def _varied(points: Sequence[Point]) -> set[str]:
    return {name for name, field in _FIELDS.items() if len({getattr(point, field) for point in points}) > 1}


def curves_of(points: Sequence[Point], over: str) -> Curves:
    """Return (x, seconds) of each curve by name: a scheme's, with other varied quantities beside ``over``."""
    others = [name for name in _FIELDS if name in _varied(points) - {over}]
    found: dict[str, list[tuple[float, float]]] = {}
    for point in points:
        where = "".join(f", {_words(name, getattr(point, _FIELDS[name]))}" for name in others)
        for outcome in point.outcomes:
            at = float(getattr(point, _FIELDS[over]))
            found.setdefault(outcome.scheme + where, []).append((at, outcome.seconds))
    return {name: ([x for x, _ in sorted(found[name])], [y for _, y in sorted(found[name])]) for name in sorted(found)}


def _words(name: str, value: float) -> str:
    text = OVER[name][1](value)
    return f"{text} ranks" if name == "ranks" else text


def _fixed(places: Sequence[SweepPoint], several: set[str]) -> list[str]:
    one = places[0]
    known = [] if "ranks" in several else [_words("ranks", one.size)]
    where = one.topology.name if one.topology else "one switch"
    if not one.topology and "bandwidth" not in several:
        where += f" with {bits_text(one.calibration.bandwidth)} a rank"
    measured = "not calibrated" if one.calibration.guess else f"calibration {one.calibration.name}"
    return [_gradients(one.profiles, "density" in several), *known, where, measured]


def _gradients(profiles: Mapping[str, Profile], any_density: bool) -> str:
    names, one = list(profiles), next(iter(profiles.values()))
    if len(names) > 1:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        return f"gradients {', '.join(names[:MOST_NAMED])}{more}"
    shape = f"{one.name}: {one.units:,} units of {one.width} {one.dtype}"
    return shape if any_density else f"{shape}, density {share_text(one.density)}, overlap {share_text(one.overlap)}"


MOST_GRADIENTS = 3
"""Most gradients that are listed below the title."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar; ``note`` stands at the right, in a column."""

    name: str
    seconds: float
    note: str


def of_tuned(found: TunedScheme) -> str:
    """Return the best schemes of a search as the text of an SVG file; raises CostError (``plots-missing``)."""
    title = f"The best of {found.tried} schemes, by predicted time of a call"
    gradients = " ".join(profile_text(profile, found.size) for profile in found.profiles[:MOST_GRADIENTS])
    fixed = f"{found.size} ranks on {found.where}. {gradients}{' Not calibrated.' if found.note else ''}"
    return bars_svg([Bar(each.draft.label, each.seconds, each.figures) for each in found.best], title, fixed)


def bars_svg(bars: Sequence[Bar], title: str, fixed: str) -> str:
    """Return the text of an SVG file with one bar for each scheme, the first on top.

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
