"""Plots as SVG, by matplotlib, which is imported when something is drawn; the same data give the same file."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from zenc.errors import CostError, Diagnostic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = {"svg.hashsalt": "zenc", "svg.fonttype": "none", "font.size": 10}


def as_svg(draw: Callable[[Figure], None], width: float, height: float) -> str:
    """What ``draw`` puts on a figure of ``width`` x ``height`` inches, as the text of an SVG file.

    Raises CostError (``plots-missing``) where matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        message = "plots need matplotlib, which is not installed"
        raise CostError(Diagnostic("plots-missing", message, help="pip install zenc[plots]")) from error
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"
