"""The figures of the page, by matplotlib, which is imported when one is drawn.

The same results give the same file, to the byte, with the version of matplotlib that constraints.txt names.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.lab.results import Spread
from benchmarks.lab.show import label
from benchmarks.lab.suite.points import POINTS
from benchmarks.lab.suite.results import Result, Results
from benchmarks.lab.suite.targets import shaped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CAPTIONS = {
    "scale": "Rows at 2 %: bytes and times by the number of ranks",
    "ratios": "Times over that of the best scheme, at every point",
    "library": "Bytes and times of the whole library",
}
SIZES = (2, 4, 8, 16)
STYLE = {"svg.hashsalt": "zenc", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False,
         "axes.spines.right": False, "legend.frameon": False}  # fmt: skip
MARKS = "osD^vPX<>*hdp"


def figures(results: Results) -> dict[str, str]:
    """Name of the file -> SVG; of those that the results are enough for."""
    from matplotlib import rc_context

    draw: dict[str, Callable[[Results], Figure | None]] = {"scale": scale, "ratios": ratios, "library": library}
    with rc_context(STYLE):
        drawn = {f"{name}.svg": draw[name](results) for name in CAPTIONS}
        return {name: svg(figure) for name, figure in drawn.items() if figure}


def svg(figure: Figure) -> str:
    into = io.StringIO()
    figure.savefig(into, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in into.getvalue().splitlines()) + "\n"


def panels(count: int, height: float) -> tuple[Figure, Sequence[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, height), layout="constrained")
    return figure, [figure.add_subplot(1, count, k + 1) for k in range(count)]


def scale(results: Results) -> Figure | None:
    found = {size: result for size in SIZES if (result := shaped(results, f"rows-{size}"))}
    if not found:
        return None
    figure, (sent, took) = panels(2, 3.8)
    sent.set(xlabel="ranks", ylabel="MB sent by the busiest rank")
    took.set(xlabel="ranks", ylabel="ms of a call, median and quartiles")
    sizes = list(found)
    for peer, line in peers_of(found.values()).items():
        having = {size: result.rows[peer] for size, result in found.items() if peer in result.rows}
        line = {**line, "markersize": 4, "linewidth": 1}
        sent.plot(list(having), [(row.sent or 0) / 1e6 for row in having.values()], **line)
        took.errorbar(list(having), *bars([row.seconds for row in having.values()], 1e3), capsize=2, **line)
    for axes, bound in zip((sent, took), zip(*map(bounds, found.values()), strict=True), strict=True):
        axes.plot(sizes, bound, color="black", linestyle="--", linewidth=1, label="bound B2")
        axes.set_xticks(sizes)
        axes.set_ylim(bottom=0)
    sent.legend()
    return figure


def ratios(results: Results) -> Figure | None:
    """A line a point; a mark a peer, on a logarithmic axis."""
    found = [result for point in reversed(POINTS) if (result := shaped(results, point.name))]
    if not found:
        return None
    figure, (axes,) = panels(1, 1.2 + 0.35 * len(found))
    for peer, mark in peers_of(reversed(found)).items():
        lines = [line for line, result in enumerate(found) if peer in result.rows]
        across, away = bars([found[line].over(peer, found[line].best()) for line in lines], 1)
        axes.errorbar(across, lines, xerr=away, linestyle="", markersize=5, **mark)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticks(range(len(found)), [result.point for result in found])
    axes.set_xlabel("time over that of the best of zenc's own schemes in the same round, median and quartiles")
    axes.grid(axis="y", linewidth=0.3)
    axes.axvline(1, color="black", linewidth=0.5)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def library(results: Results) -> Figure | None:
    result = shaped(results, "library-8")
    if not result:
        return None
    peers = sorted(result.rows, key=lambda peer: -result.rows[peer].seconds.median)
    names, rows = [label(peer) for peer in peers], [result.rows[peer] for peer in peers]
    figure, (sent, took) = panels(2, 0.8 + 0.28 * len(peers))
    sent.plot([(row.sent or 0) / 1e6 for row in rows], names, "o")
    sent.set(xscale="log", xlabel="MB sent by the busiest rank; line: B2")
    middle, away = bars([row.seconds for row in rows], 1e3)
    took.errorbar(middle, names, xerr=away, fmt="o")
    took.set(xscale="log", xlabel="ms of a call, median and quartiles; line: B2 / rate")
    took.tick_params(labelleft=False)
    for axes, bound in zip((sent, took), bounds(result), strict=True):
        axes.grid(axis="y", linewidth=0.3)
        axes.axvline(bound, color="black", linewidth=0.5)
    return figure


def bounds(result: Result) -> tuple[float, float]:
    """B2 in MB, and B2 over the rate in ms."""
    assert result.bounds and result.bounds.seconds, "all-reduces on a shaped network have bounds"
    return result.bounds.bandwidth_bytes / 1e6, result.bounds.seconds * 1e3


def bars(spreads: Sequence[Spread], factor: float) -> tuple[list[float], list[list[float]]]:
    """Medians, and how far the quartiles are from them, down and up."""
    middle = [spread.median * factor for spread in spreads]
    down = [(spread.median - spread.low) * factor for spread in spreads]
    return middle, [down, [(spread.high - spread.median) * factor for spread in spreads]]


def peers_of(results: Iterable[Result]) -> dict[str, Any]:
    """The peers in the order in which they appear, each with its mark and colour."""
    names = dict.fromkeys(name for result in results for name in result.settings.peers)
    return {
        name: {"marker": MARKS[k % len(MARKS)], "color": f"C{k % 10}", "label": label(name)}
        for k, name in enumerate(names)
    }
