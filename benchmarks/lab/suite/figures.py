"""The figures of the page, by matplotlib, which is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.lab.results import Spread
from benchmarks.lab.show import label
from benchmarks.lab.suite.points import POINTS
from benchmarks.lab.suite.results import Result, Results, shaped
from zenc.draw.colour import distinct
from zenc.draw.plots.figure import INK, QUIET, as_svg, logarithmic, round_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

CAPTIONS = {
    "scale": "Rows at 2 %: bytes and times by the number of ranks",
    "ratios": "Times over that of the best scheme, at every point",
}
SIZES = (2, 4, 8, 16)
MARKS = "osD^vPX<>*hdp"
WIDTH = 9.6
"""The width of each figure, in inches."""


def figures(results: Results) -> dict[str, str]:
    """Return the SVG of each figure by the name of its file, but for figures whose results are missing."""
    draw: dict[str, Callable[[Results], str]] = {"scale": scale, "ratios": ratios}
    drawn = {f"{name}.svg": draw[name](results) for name in CAPTIONS}
    return {name: svg for name, svg in drawn.items() if svg}


def panels(figure: FigureBase, count: int) -> Sequence[Axes]:
    return [figure.add_subplot(1, count, k + 1) for k in range(count)]


def scale(results: Results) -> str:
    found = {size: result for size in SIZES if (result := shaped(results, f"rows-{size}"))}
    if not found:
        return ""
    sizes = list(found)

    def draw(figure: FigureBase) -> None:
        sent, took = panels(figure, 2)
        sent.set(xlabel="ranks", ylabel="MB sent by the busiest rank")
        took.set(xlabel="ranks", ylabel="ms of a call, median and quartiles")
        for peer, line in peers_of(found.values()).items():
            having = {size: result.rows[peer] for size, result in found.items() if peer in result.rows}
            line = {**line, "markersize": 4.5, "linewidth": 1.2}
            sent.plot(list(having), [(row.sent or 0) / 1e6 for row in having.values()], **line)
            took.errorbar(list(having), *bars([row.seconds for row in having.values()], 1e3), capsize=2, **line)
        for axes, bound in zip((sent, took), zip(*map(bounds, found.values()), strict=True), strict=True):
            axes.plot(sizes, bound, color=INK, linestyle="--", linewidth=1, label="bound B2")
            axes.set_xticks(sizes)
            axes.set_ylim(bottom=0)
            axes.grid(True)
        sent.legend()

    fixed = f"{sizes[0]} to {sizes[-1]} ranks, each with {fixed_of(found[sizes[-1]])}"
    return as_svg(draw, WIDTH, 4.1, "Bytes and time of a call by number of ranks", fixed)


def fixed_of(result: Result) -> str:
    """Return the network and the tensor: the title of a point without its number of ranks."""
    return result.title.partition(" ranks, ")[2] or result.title


def ratios(results: Results) -> str:
    """Return a figure with a line a point; a mark a peer, on a logarithmic axis."""
    found = [result for point in reversed(POINTS) if (result := shaped(results, point.name))]
    if not found:
        return ""

    def draw(figure: FigureBase) -> None:
        (axes,) = panels(figure, 1)
        greatest = 1.0
        for peer, mark in peers_of(reversed(found)).items():
            lines = [line for line, result in enumerate(found) if peer in result.rows]
            across, away = bars([found[line].over(peer, found[line].best()) for line in lines], 1)
            axes.errorbar(across, lines, xerr=away, linestyle="", markersize=5.5, **mark)
            greatest = max(greatest, *across)
        logarithmic(axes, "x", round_values(1.0, greatest * 1.1), "{:g}".format)
        axes.set_yticks(range(len(found)), [result.point for result in found])
        axes.set_xlabel("times as long as the best of zenc's own schemes in the same round; median and quartiles")
        axes.grid(axis="y")
        axes.axvline(1, color=QUIET, linewidth=0.8)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))

    fixed = "Ranks, tensor and network of each point are those of its table. Less is better."
    return as_svg(draw, WIDTH, 1.3 + 0.36 * len(found), "Time over that of the best scheme, at every point", fixed)


def bounds(result: Result) -> tuple[float, float]:
    """Return B2 in MB, and B2 over the rate in ms."""
    assert result.bounds and result.bounds.seconds, "all-reduces on a shaped network have bounds"
    return result.bounds.bandwidth_bytes / 1e6, result.bounds.seconds * 1e3


def bars(spreads: Sequence[Spread], factor: float) -> tuple[list[float], list[list[float]]]:
    """Return medians, and how far the quartiles are from them, down and up."""
    middle = [spread.median * factor for spread in spreads]
    down = [(spread.median - spread.low) * factor for spread in spreads]
    return middle, [down, [(spread.high - spread.median) * factor for spread in spreads]]


def peers_of(results: Iterable[Result]) -> Mapping[str, Mapping[str, Any]]:
    """Return the peers in the order in which they appear, each with its mark and a colour that no other has."""
    names = dict.fromkeys(name for result in results for name in result.settings.peers)
    return {
        name: {"marker": MARKS[k % len(MARKS)], "color": colour, "label": label(name)}
        for k, (name, colour) in enumerate(zip(names, distinct(len(names)), strict=True))
    }
