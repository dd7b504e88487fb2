"""The fits of ``overlap`` as tables: parameters, what follows from them, and by how much one for all would be off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log
from typing import TYPE_CHECKING, Any

from benchmarks.lab.suite.figures import MARKS, WIDTH, panels
from benchmarks.reproduce import SPARSITY, where
from benchmarks.reproduce.overlap import core, core_with, words, words_with
from benchmarks.reproduce.results import Results
from benchmarks.reproduce.workloads import GPUS, NATURAL, density_of, fitted, rows_of, sum_of_128
from zenc.draw.colour import distinct
from zenc.draw.plots.figure import QUIET, RULE, as_svg, logarithmic, round_values
from zenc.gradients.profile import Profile

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase


POINTS: dict[str, tuple[int, Callable[[], float], str]] = {
    "NMT": (128, lambda: sum_of_128("NMT") / density_of("NMT"), "nmt_below_dense_at_128"),
    "BERT": (128, lambda: sum_of_128("BERT") / density_of("BERT"), "bert_density_of_128"),
    "DeepFM": (GPUS, lambda: SPARSITY["deepfm_density_of_8"] / density_of("DeepFM"), "deepfm_density_of_8"),
}
"""Facts of a model: ranks, their published densification, and its source."""


def chosen() -> list[dict[str, Any]]:
    """Return the profile of each model, and the characteristics that it was not fitted to."""
    to = {name: f"gamma^{point[0]} = {point[1]():.3g}" for name, point in POINTS.items()}
    to["LSTM"] = f"skewness of 128 ranges = {SPARSITY['lstm_skewness_at_128']:g}"
    rows = [(name, to[name]) for name in (*NATURAL, "BERT")]
    return [of(name, source) for name, source in [*rows, ("OPT-2.7B", "first eighth = 60 %, no core")]]


def of(name: str, source: str) -> dict[str, Any]:
    profile = fitted(name)
    ranks = (2, 8, 16, 128)
    return {
        "model": name,
        "family": profile.name,
        "fitted to": source,
        "overlap": profile.overlap,
        "first eighth": profile.skewness(8) / 8,
        "skewness at 128": profile.skewness(128),
        "gamma": {str(k): float(g) for k, g in zip(ranks, profile.densification(ranks), strict=True)},
        "density": profile.density,
    }


def families() -> list[dict[str, Any]]:
    """Return both families fitted to the same point, and Zen's gain on 16 machines of 8, by volume."""
    found = []
    for name, (ranks, gamma, place) in POINTS.items():
        density, units = density_of(name), rows_of(name)
        wanted = gamma() * density

        def union(profile: Profile, ranks: int = ranks) -> float:
            return float(profile.union(ranks))

        made = words(density, words_with(density, units, union, wanted), units)
        cored = core(density, core_with(density, units, union, wanted), units)
        found += [family(name, place, each) for each in (made, cored)]
    return found


def family(name: str, place: str, profile: Profile) -> dict[str, Any]:
    d8, d128 = (float(profile.union(k)) for k in (8, 128))
    first = profile.skewness(8) / 8
    return {
        "model": name,
        "where": where(place),
        "family": profile.name,
        "gamma 8": d8 / profile.density,
        "gamma 128": d128 / profile.density,
        "overlap": profile.overlap,
        "first eighth": first,
        "zen": 2 / (2 * d8 + d128 + 1 / 32),
    }


def common(names: Sequence[str]) -> dict[str, Any]:
    """Return one exponent for ``names``, by least squares of log gamma, and the residuals."""

    def logs(exponent: float) -> list[float]:
        return [log(gamma_of(name, exponent) / POINTS[name][1]()) for name in names]

    low, high = 0.3, 4.0
    for _ in range(40):  # the sum of squares has one valley: each log falls with the exponent
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, b) if sum(x * x for x in logs(a)) < sum(x * x for x in logs(b)) else (a, high)
    rows = [{"model": n, "ranks": POINTS[n][0], "published": POINTS[n][1](), "ours": gamma_of(n, low)} for n in names]
    return {"exponent": low, "points": rows}


def gamma_of(name: str, exponent: float) -> float:
    return float(words(density_of(name), exponent, rows_of(name)).densification(POINTS[name][0]))


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
        for (key, (mark, said)), colour in zip(shown.items(), distinct(len(shown)), strict=True):
            axes.plot([row[key] for row in rows], lines, mark, color=colour, markersize=6, label=said)
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
