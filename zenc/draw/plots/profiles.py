"""Profiles as SVG: when a model's gradients are ready; and holders, densification and skewness of each table."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from zenc.common.wording import seconds_text, share_text, size_text
from zenc.draw.colour import distinct
from zenc.draw.plots.figure import QUIET, RULE, as_svg, linear, logarithmic, round_values
from zenc.gradients.profile import Profile
from zenc.gradients.profile_report import ranks_of, shares_of_holders
from zenc.simulator.training.model_profile import ModelProfile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

LEAST_RANKS = 128
"""The least number of ranks up to which densification is drawn."""
SKEWED_PARTS = 8
LEAST_NAMED = 0.05
"""The share of all bytes from which on a gradient is named: names of smaller ones would lie on each other."""
(COLOUR,) = distinct(1)


def svg(profiles: Mapping[str, Profile], ranks: int | None, model: ModelProfile | None = None) -> str:
    """Return a panel for ``model``, and a line of three for each profile, in SVG.

    Raises CostError (``plots-missing``).
    """
    lines = len(profiles) + (model is not None)

    def draw(figure: FigureBase) -> None:
        rows = list(np.atleast_1d(figure.subfigures(lines, 1, hspace=0.06)))
        if model is not None:
            _ready(rows.pop(0).add_subplot(), model)
        for row, profile in zip(rows, profiles.values(), strict=True):
            n = ranks_of(profile, ranks)
            row.suptitle(_told(profile), x=0.012, ha="left", fontsize=10, weight="bold")
            holders, densification, skewness = (row.add_subplot(1, 3, column) for column in (1, 2, 3))
            _holders(holders, profile, n)
            _densification(densification, profile, n)
            _skewness(skewness, profile)

    title = "When gradients are ready" if not profiles else "How sparse gradients are, and how ranks overlap"
    return as_svg(draw, 11, 3.4 * lines + 0.3, title)


def _told(profile: Profile) -> str:
    shape = f"{profile.units:,} units of {profile.width} {profile.dtype}"
    recorded = f", recorded on {profile.ranks} ranks" if profile.ranks else ""
    return f"{profile.name}: {shape}, of which a rank holds {share_text(profile.density)}{recorded}"


def _holders(axes: Axes, profile: Profile, n: int) -> None:
    axes.bar(np.arange(1, n + 1), shares_of_holders(profile, n) * 100, color=COLOUR)
    axes.set(xlabel=f"holders among {n} ranks", ylabel="of the units that are held")
    axes.set_title(f"overlap of two ranks: {share_text(profile.overlap)}", loc="left")
    linear(axes.yaxis, lambda value: f"{value:g} %")
    if n <= 10:
        axes.set_xticks(range(1, n + 1))
    else:
        axes.locator_params(axis="x", integer=True)


def _densification(axes: Axes, profile: Profile, n: int) -> None:
    most = max(LEAST_RANKS, n)
    k = np.unique(np.geomspace(1, most, 60).round())
    sums = profile.densification(k)
    axes.plot(k, k, color=QUIET, linestyle="--", linewidth=1, label="no overlap")
    axes.plot(k, sums, color=COLOUR, label="this gradient")
    axes.plot(k, np.ones(len(k)), color=QUIET, linestyle=":", linewidth=1, label="all ranks alike")
    if profile.ranks:
        axes.axvline(profile.ranks, color=RULE, zorder=0, label="as recorded")
    logarithmic(
        axes, "x", [1 << power for power in range(0, most.bit_length(), 1 if most < 512 else 2)], "{:,.0f}".format
    )
    logarithmic(axes, "y", round_values(1, float(most)), "{:g}".format)
    axes.set(xlabel="ranks in the sum", ylabel="denser than one rank, times")
    axes.set_title(f"densification at {most}: {float(sums[-1]):.3g}", loc="left")
    axes.legend(fontsize=8)


def _skewness(axes: Axes, profile: Profile) -> None:
    edges = np.linspace(0, 1, len(profile.ranges) + 1)
    each = profile.union_between(edges[:-1] * profile.units, edges[1:] * profile.units, 1)
    axes.stairs(each * 100, edges * 100, fill=True, color=COLOUR)
    axes.set(xlabel="units, in their order", ylabel="density of a rank", ylim=(0, None))
    linear(axes.xaxis, lambda value: f"{value:g} %")
    linear(axes.yaxis, lambda value: f"{value:g} %")
    axes.set_title(f"skewness of {SKEWED_PARTS} parts: {profile.skewness(SKEWED_PARTS):.3g}", loc="left")


def _ready(axes: Axes, model: ModelProfile) -> None:
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
    axes.set_title(_passes(model), loc="left")
    linear(axes.xaxis, seconds_text)
    linear(axes.yaxis, size_text)


def _passes(model: ModelProfile) -> str:
    forward = "" if model.seconds_forward is None else f", forward {seconds_text(model.seconds_forward)}"
    exposed = f"{seconds_text(model.seconds_exposed)} of it wait for synchronisation alone"
    return f"{len(model.parameters)} parameters: a step takes {seconds_text(model.seconds_step)}{forward}; {exposed}"
