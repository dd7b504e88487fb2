"""A model profile on axes: the bytes of gradients that are ready over the backward pass."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from zenc.common.wording import seconds_text, size_text
from zenc.draw.colour import distinct
from zenc.draw.plots.figure import QUIET, linear
from zenc.simulator.training.model_profile import ModelProfile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST_NAMED = 0.05
"""The share of all bytes from which on a gradient is named: names of smaller ones would lie on each other."""
(COLOUR,) = distinct(1)


def draw(axes: Axes, model: ModelProfile) -> None:
    """Draw the ready bytes as a stair over seconds since the backward pass began; the greatest steps have names."""
    ordered = model.in_order
    ready = [each.ready or 0.0 for each in ordered]
    total = list(accumulate(each.bytes for each in ordered))
    axes.step([0.0, *ready], [0, *total], where="post", color=COLOUR)
    for at in (at for at, each in enumerate(ordered) if each.bytes >= LEAST_NAMED * total[-1]):
        place = ready[at], total[at] - ordered[at].bytes / 2
        axes.annotate(ordered[at].name, place, xytext=(-4, 0), textcoords="offset points", ha="right", va="center",
                      fontsize=8, color=QUIET)  # fmt: skip
    if model.seconds_backward is not None:
        axes.axvline(model.seconds_backward, color=QUIET, linestyle=":", linewidth=1)
    axes.set(xlabel="since the backward pass began", ylabel="gradients that are ready")
    axes.set_title(_told(model), loc="left")
    linear(axes.xaxis, seconds_text)
    linear(axes.yaxis, size_text)


def _told(model: ModelProfile) -> str:
    forward = "" if model.seconds_forward is None else f", forward {seconds_text(model.seconds_forward)}"
    exposed = f"{seconds_text(model.seconds_exposed)} of it wait for synchronisation alone"
    return f"{len(model.parameters)} parameters: a step takes {seconds_text(model.seconds_step)}{forward}; {exposed}"
