"""A figure of matplotlib as SVG, and axes that read as people speak: 2, 4, 8 ranks, 10 ms, 1 %; never powers of ten.

Matplotlib is imported when something is drawn, and the same data give the same file.

Pages are light or dark: a plot has paper of its own in the colours of a light page, and turns dark with the page by
rules that replace exactly these colours. So whatever is no datum is drawn in one of ``DARK``.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from zenc.common.wording import seconds_text
from zenc.errors import CostError, Diagnostic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import FigureBase


PAPER, INK, QUIET, RULE = "#ffffff", "#1f2733", "#667084", "#d4dae3"
DARK: Mapping[str, str] = MappingProxyType({PAPER: "#11161d", INK: "#e3e8ef", QUIET: "#93a0b1", RULE: "#333d4b"})
"""Colour on a light page -> on a dark one; those of ``templates/draw/style.css``."""
LETTERS_PER_INCH, LINE, LEFT = 14.5, 0.17, 0.012
"""The lines below the title: letters per inch, inches from one to the next, and their left edge."""

STYLE: Mapping[str, Any] = {
    "svg.hashsalt": "zenc", "svg.fonttype": "none", "font.size": 10,
    "figure.facecolor": PAPER, "axes.facecolor": PAPER, "text.color": INK, "legend.frameon": False,
    "legend.fontsize": 9, "axes.edgecolor": QUIET, "axes.labelcolor": INK, "axes.titlesize": 10,
    "axes.spines.top": False, "axes.spines.right": False, "grid.color": RULE, "grid.alpha": 1.0,
    "grid.linewidth": 0.6, "axes.axisbelow": True, "xtick.color": QUIET, "ytick.color": QUIET,
    "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "figure.constrained_layout.w_pad": 0.08, "figure.constrained_layout.h_pad": 0.08,
}  # fmt: skip


def ensure_matplotlib() -> None:
    """Raise CostError (``plots-missing``) where matplotlib is not installed."""
    try:
        import_module("matplotlib")
    except ImportError as error:
        message = "plots need matplotlib, which is not installed"
        raise CostError(Diagnostic("plots-missing", message, help="pip install zenc[plots]")) from error


def as_svg(draw: Callable[[FigureBase], None], width: float, height: float, title: str, fixed: str = "") -> str:
    """Return the text of an SVG file: a figure of ``width`` x ``height`` inches, on which ``draw`` has drawn.

    ``title`` names the contents and the varied quantities; ``fixed``, below it and smaller, the others.
    Raises CostError (``plots-missing``) where matplotlib is not installed.
    """
    ensure_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    lines = textwrap.wrap(fixed, int(width * LETTERS_PER_INCH))
    with rc_context(dict(STYLE)):
        figure = Figure(figsize=(width, height + LINE * len(lines)), layout="constrained")
        figure.suptitle(title, x=LEFT, ha="left", fontsize=11.5, weight="bold")
        inner = figure.add_subfigure(figure.add_gridspec(1, 1)[0])
        inner.suptitle("\n".join(lines), x=LEFT, ha="left", fontsize=9, color=QUIET)
        draw(inner)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    trimmed = "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"
    return re.sub(r"<svg\b[^>]*>", lambda found: found[0] + _head(title), trimmed, count=1)


def _head(title: str) -> str:
    """Return the name of the picture for screen readers, and its colours on a dark page."""
    rules = [
        f'[style*="{kind}: {light}"] {{ {kind}: {dark} !important }}'
        for light, dark in DARK.items()
        for kind in ("fill", "stroke")
    ]
    style = "\n  ".join(["@media (prefers-color-scheme: dark) {", *rules])
    return f"\n <title>{escape(title)}</title>\n <style>\n {style}\n }}\n </style>"


Words = Callable[[float], str]

MOST_TICKS = 9
_STEPS = ((1.0, 3.0), (1.0, 2.0, 5.0))
"""The round numbers of each decade, from the coarsest."""
_CLOSE = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
"""Steps within a decade, for ranges that are not much longer than one."""


def round_values(low: float, high: float) -> list[float]:
    """Return a few round numbers, nine or so at most, from ``low`` > 0 to ``high``, for a logarithmic axis."""
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
    """Return the ends of ``values`` > 0, and those between that are far enough from the one before to be read."""
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
    """Make the upright axis logarithmic, with room around ``values``; those of 0 or less are left out."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = min(positive) / 1.25, max(positive) * 1.25
    logarithmic(axes, "y", round_values(low, high), seconds_text)
    axes.set_ylim(low, high)


def linear(axis: Axis, words: Words) -> None:
    """Make an axis linear from 0 with a few steps, in ``words``."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: words(value) if value else "0"))
