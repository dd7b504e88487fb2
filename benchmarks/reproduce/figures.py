"""The figures of the page, from its results; the look is that of the suite of the lab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.lab.suite.figures import MARKS, STYLE, panels, svg
from benchmarks.reproduce.fits import POINTS
from benchmarks.reproduce.results import Results
from benchmarks.reproduce.workloads import fitted

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figures(results: Results) -> dict[str, str]:
    """Name of the file -> SVG. Raises ImportError without matplotlib."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        drawn = {"ratios": ratios(results), "sums": sums(results), "nmt": nmt(results)}
        return {f"{name}.svg": svg(figure) for name, figure in drawn.items()}


def ratios(results: Results) -> Figure:
    """A line a ratio that nothing was fitted to."""
    rows = [row for row in reversed(results["rows"]) if not row["fitted"]]
    figure, (axes,) = panels(1, 1.0 + 0.24 * len(rows))
    lines = range(len(rows))
    marks = {"published": "o", "ours": "D", "best": "|"}
    axes.hlines(
        lines, [row["published"] for row in rows], [row["ours"] for row in rows], color="lightgrey", linewidth=2
    )
    for (key, mark), words in zip(marks.items(), ("published", "computed", "zenc's best"), strict=True):
        axes.plot([row[key] for row in rows], lines, mark, markersize=5, label=words)
    titles = [f"{row['model']}, {row['gbits']}: {row['of']} over {row['over']}" for row in rows]
    axes.set_yticks(lines, [f"{t} ({row['quantity']})" for t, row in zip(titles, rows, strict=True)])
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("times faster")
    axes.legend(loc="lower right")
    return figure


def sums(results: Results) -> Figure:
    figure, (axes,) = panels(1, 3.6)
    ranks = [1, 2, 4, 8, 16, 32, 64, 128]
    for k, row in enumerate(results["fits"]["chosen"]):
        name = row["model"]
        axes.plot(ranks, fitted(name).union(ranks), color=f"C{k}", label=f"{name}: {row['family']}")
        if name in POINTS:
            at, gamma, _ = POINTS[name]
            axes.plot([at], [gamma() * row["density"]], "o", color=f"C{k}")
    axes.set_xscale("log", base=2)
    axes.set_xticks(ranks, [str(k) for k in ranks])
    axes.set(xlabel="ranks in the sum; points are published", ylabel="density of the sum", ylim=(0, 1))
    axes.legend()
    return figure


def nmt(results: Results) -> Figure:
    figure, (axes,) = panels(1, 4.2)
    for k, (name, found) in enumerate(results["volumes"].items()):
        sizes = [int(n) for n in found]
        line = "--" if name in ("balanced", "hierarchical_centralization", "holders") else "-"
        axes.plot(sizes, list(found.values()), line, marker=MARKS[k % len(MARKS)], markersize=4, label=name)
    axes.axhline(1, color="black", linewidth=0.5)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.set(xlabel="GPUs", ylabel="over dense", ylim=(0, 2))
    axes.legend(ncol=2)
    return figure
