"""A simulation as SVG: a curve for each scheme over ranks, density or bandwidth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from zenc.draw.plots.curves import OVER, svg
from zenc.format_units import share_text
from zenc.gradients.profile import Profile
from zenc.simulator.sweep import Point, Simulation, SweepPoint
from zenc.topology.units import bits_text

_FIELDS = {"ranks": "size", "density": "density", "bandwidth": "bandwidth"}
_TITLES = {"ranks": "number of ranks", "density": "density", "bandwidth": "bandwidth"}
MOST_NAMED = 3
"""Gradients of a step that a title names."""

Curves: TypeAlias = dict[str, tuple[list[float], list[float]]]


def plot(found: Simulation, places: Sequence[SweepPoint], over: str) -> str:
    """The text of an SVG file; ``over`` is ranks, density or bandwidth, and ``places`` are those simulated.

    Raises CostError (``plots-missing``) where matplotlib is not installed.
    """
    gradients = places[0].profiles
    what = "a call" if len(gradients) == 1 else f"a step's {len(gradients)} gradients"
    title = f"Predicted time of {what} by {_TITLES[over]}"
    return svg(curves(found.points, over), over, title, "; ".join(_fixed(places, varied(found.points))))


def varied(points: Sequence[Point]) -> set[str]:
    """Of ranks, density and bandwidth those that have several values."""
    return {name for name, field in _FIELDS.items() if len({getattr(point, field) for point in points}) > 1}


def curves(points: Sequence[Point], over: str) -> Curves:
    """Name -> its (x, seconds) where it runs: a scheme, with what else is varied beside ``over``."""
    others = [name for name in _FIELDS if name in varied(points) - {over}]
    found: Curves = {}
    for point in points:
        where = "".join(f", {_words(name, getattr(point, _FIELDS[name]))}" for name in others)
        for outcome in point.outcomes:
            xs, ys = found.setdefault(outcome.scheme + where, ([], []))
            xs.append(float(getattr(point, _FIELDS[over])))
            ys.append(outcome.seconds)
    return {name: _ascending(*found[name]) for name in sorted(found)}


def _ascending(xs: list[float], ys: list[float]) -> tuple[list[float], list[float]]:
    pairs = sorted(zip(xs, ys, strict=True))
    return [x for x, _ in pairs], [y for _, y in pairs]


def _words(name: str, value: float) -> str:
    text = OVER[name][1](value)
    return f"{text} ranks" if name == "ranks" else text


def _fixed(places: Sequence[SweepPoint], several: set[str]) -> list[str]:
    """The conditions that all points share, in words."""
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
