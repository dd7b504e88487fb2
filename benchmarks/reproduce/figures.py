"""The figures of the page, from its results, by matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.lab.suite.figures import MARKS, WIDTH, panels
from benchmarks.reproduce.fits import POINTS
from benchmarks.reproduce.results import Results
from benchmarks.reproduce.workloads import fitted
from zenc.draw.colour import distinct
from zenc.draw.plots.figure import QUIET, RULE, as_svg, logarithmic, round_values

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

FIGURES = {
    "ratios": "Ratios as published, as computed, and what zenc's best scheme is beside them",
    "sums": "How dense the sum of k ranks is: the fitted profiles, and the published points",
    "nmt": "NMT: time of the busiest GPU over that of a dense all-reduce, by volume",
}
"""Captions by name."""


def picture(name: str) -> str:
    """Return the Markdown of the figure ``name``."""
    return f"![{FIGURES[name]}](../../docs/reproduction/{name}.svg)"


def figures(results: Results) -> dict[str, str]:
    """Return the SVG of each figure by its file's name; raises CostError (``plots-missing``) without matplotlib."""
    drawn = {"ratios": ratios(results), "sums": sums(results), "nmt": nmt(results)}
    return {f"{name}.svg": svg for name, svg in drawn.items()}


def ratios(results: Results) -> str:
    """Return a line a ratio that nothing was fitted to."""
    rows = [row for row in reversed(results["rows"]) if not row["fitted"]]
    lines = range(len(rows))
    shown = {"published": ("o", "published"), "ours": ("D", "computed"), "best": ("|", "zenc's best")}

    def draw(figure: FigureBase) -> None:
        (axes,) = panels(figure, 1)
        pairs = [row["published"] for row in rows], [row["ours"] for row in rows]
        axes.hlines(lines, *pairs, color=RULE, linewidth=2)
        for (key, (mark, words)), colour in zip(shown.items(), distinct(len(shown)), strict=True):
            axes.plot([row[key] for row in rows], lines, mark, color=colour, markersize=6, label=words)
        titles = [f"{row['model']}, {row['gbits']}: {row['of']} over {row['over']}" for row in rows]
        axes.set_yticks(lines, [f"{t} ({row['quantity']})" for t, row in zip(titles, rows, strict=True)])
        values = [row[key] for row in rows for key in shown]
        logarithmic(axes, "x", round_values(min(values), max(values)), "{:g}".format)
        axes.set_xlabel("times faster")
        axes.grid(axis="x")
        axes.legend(loc="lower right")

    title = "Ratios as published, and as the cost model has them"
    fixed = "A line for each ratio that nothing was fitted to: the model, Gbit/s of a machine, what over what."
    return as_svg(draw, WIDTH, 1.0 + 0.24 * len(rows), title, fixed)


def sums(results: Results) -> str:
    ranks, chosen = [1, 2, 4, 8, 16, 32, 64, 128], results["fits"]["chosen"]

    def draw(figure: FigureBase) -> None:
        (axes,) = panels(figure, 1)
        for row, colour in zip(chosen, distinct(len(chosen)), strict=True):
            name = row["model"]
            axes.plot(ranks, fitted(name).union(ranks) * 100, color=colour, label=f"{name}: {row['family']}")
            if name in POINTS:
                at, gamma, _ = POINTS[name]
                axes.plot([at], [gamma() * row["density"] * 100], "o", color=colour)
        logarithmic(axes, "x", ranks, "{:g}".format)
        axes.set(xlabel="ranks in the sum; points are published", ylabel="density of the sum, %", ylim=(0, 100))
        axes.grid(True)
        axes.legend()

    return as_svg(draw, WIDTH, 3.8, "Density of a sum by the ranks in it", "The profiles that were fitted, by model.")


def nmt(results: Results) -> str:
    volumes = results["volumes"]

    def draw(figure: FigureBase) -> None:
        (axes,) = panels(figure, 1)
        for k, ((name, found), colour) in enumerate(zip(volumes.items(), distinct(len(volumes)), strict=True)):
            sizes = [int(n) for n in found]
            line = "--" if name in ("balanced", "hierarchical_centralization", "holders") else "-"
            mark = MARKS[k % len(MARKS)]
            axes.plot(sizes, list(found.values()), line, color=colour, marker=mark, markersize=4.5, label=name)
        axes.axhline(1, color=QUIET, linewidth=0.8)
        logarithmic(axes, "x", sizes, "{:g}".format)
        axes.set(xlabel="GPUs", ylabel="times that of a dense all-reduce", ylim=(0, 2))
        axes.grid(True)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))

    fixed = "NMT's gradients, as fitted; the busiest GPU, by volume alone. Dashed: as zenc writes the schemes."
    return as_svg(draw, WIDTH, 4.2, "Time over that of a dense all-reduce, by number of GPUs", fixed)
