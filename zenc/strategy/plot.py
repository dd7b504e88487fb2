"""A simulated step on axes: the work and waits of the backward pass, the links and the devices over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zenc.common.wording import seconds_text
from zenc.draw.colour import distinct
from zenc.draw.plots.figure import QUIET, as_svg, linear
from zenc.strategy.simulation.replay import SHARED, Replay
from zenc.strategy.simulation.step import TrainingStep
from zenc.strategy.simulation.step_trace import ROWS
from zenc.strategy.simulation.timeline import Resource

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

HEIGHT = 0.6


def svg(step: TrainingStep, of: Replay, labels: Sequence[str], title: str, fixed: str = "") -> str:
    """Return the timeline of ``step`` as an SVG file: a row for each resource, a colour for each of ``labels``.

    Raises CostError (``plots-missing``).
    """

    def drawn(figure: FigureBase) -> None:
        draw(figure.subplots(), step, of, labels)

    return as_svg(drawn, 9.0, 1.6 + HEIGHT * len(_rows(of)), title, fixed)


def draw(axes: Axes, step: TrainingStep, of: Replay, labels: Sequence[str]) -> None:
    """Draw bars from the begin of the forward pass on; the passes in one colour, calls by their labels."""
    rows, names = _rows(of), list(dict.fromkeys(labels))
    colours = dict(zip(names, distinct(len(names)), strict=True))
    axes.broken_barh([(0.0, step.forward)], (-HEIGHT / 2, HEIGHT), color=QUIET, alpha=0.4)
    for span in of.spans:
        row = SHARED.get(span.resource, span.resource)
        where = rows.index(row) - HEIGHT / 2, HEIGHT
        passes = row is Resource.BACKWARD
        colour = QUIET if passes else colours[labels[span.tensor]]
        bar = [(step.forward + span.start, span.end - span.start)]
        axes.broken_barh(bar, where, facecolor=colour, edgecolor="none" if passes else "white", linewidth=0.3)
    for name in names:
        axes.plot([], [], linewidth=6, color=colours[name], label=name)
    axes.axvline(step.computing, color=QUIET, linestyle=":", linewidth=1)
    axes.set_yticks(range(len(rows)), ["passes" if row is Resource.BACKWARD else ROWS[row] for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("since the forward pass began; dotted: the backward pass ends")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.45), ncols=2)
    linear(axes.xaxis, seconds_text)


def _rows(of: Replay) -> list[Resource]:
    used = {SHARED.get(span.resource, span.resource) for span in of.spans}
    return [row for row in ROWS if row in used]
