"""Curves of seconds over ranks, density or bandwidth, as SVG. matplotlib is imported when something is drawn."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from zenc.errors import CostError, Diagnostic

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
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        message = "plots need matplotlib, which is not installed"
        raise CostError(Diagnostic("plots-missing", message, help="pip install zenc[plots]")) from error
    with matplotlib.rc_context({"svg.hashsalt": "zenc", "svg.fonttype": "none", "font.size": 10}):
        figure = Figure(figsize=(8, 5), layout="constrained")
        axes = figure.add_subplot()
        for number, (name, (xs, ys)) in enumerate(curves.items()):
            axes.plot(xs, ys, label=name, marker=_MARKS[number % len(_MARKS)], markersize=4, linewidth=1.5)
        axes.set(xscale="log", yscale="log", xlabel=LABELS[over], ylabel="seconds", title=title)
        if over == "ranks":
            axes.set_xscale("log", base=2)
        axes.grid(True, which="major", alpha=0.3)
        axes.legend(frameon=False, fontsize=9)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
