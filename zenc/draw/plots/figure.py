"""A figure of matplotlib as SVG; it is imported when something is drawn, and the same data give the same file.

Pages are light or dark: a plot has paper of its own in the colours of a light page, and turns dark with the page by
rules that replace exactly these colours. So whatever is no datum is drawn in one of ``DARK``.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Mapping
from html import escape
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from zenc.errors import CostError, Diagnostic

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

PAPER, INK, QUIET, RULE = "#ffffff", "#1f2733", "#667084", "#d4dae3"
DARK: Mapping[str, str] = MappingProxyType({PAPER: "#11161d", INK: "#e3e8ef", QUIET: "#93a0b1", RULE: "#333d4b"})
"""Colour on a light page -> on a dark one; those of ``templates/draw/style.css.j2``."""
LETTERS_PER_INCH, LINE, LEFT = 14.5, 0.17, 0.012
"""Of the lines below the title: letters, inches from one to the next, and where they begin."""

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
    """The text of an SVG file: a figure of ``width`` x ``height`` inches, on which ``draw`` has drawn.

    ``title`` says what is shown and what was varied; ``fixed``, below it and smaller, what was not.
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
    """The name of the picture for those who don't see it, and its colours on a dark page."""
    rules = [
        f'[style*="{kind}: {light}"] {{ {kind}: {dark} !important }}'
        for light, dark in DARK.items()
        for kind in ("fill", "stroke")
    ]
    style = "\n  ".join(["@media (prefers-color-scheme: dark) {", *rules])
    return f"\n <title>{escape(title)}</title>\n <style>\n {style}\n }}\n </style>"
