"""A report as a picture: SVG that needs no other file."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from benchmarks.lab.results import Report, Spread
from benchmarks.lab.show import title

WIDTH, LINE, LABEL, BAR = 900, 26, 200, 550
STYLE = """<style>
.paper { fill: #ffffff } text { fill: #1f2733 }
.bar { fill: #7a9cc6 } .spread { stroke: #1f2733 } .bound { stroke: #b03030 }
@media (prefers-color-scheme: dark) {
  .paper { fill: #11161d } text { fill: #e3e8ef }
  .bar { fill: #3f6699 } .spread { stroke: #e3e8ef } .bound { stroke: #e07070 }
}
</style>"""
Bars = Sequence[tuple[str, Spread]]


def plot(report: Report) -> str:
    """Return two panels of horizontal bars: bytes that the busiest rank sends, and seconds with their quartiles."""
    sent = [(name, Spread(row.sent, row.sent, row.sent)) for name, row in report.rows.items() if row.sent is not None]
    took = [(name, row.seconds) for name, row in report.rows.items()]
    panels = [
        ("MB sent by the busiest rank; line: bandwidth bound B2", sent, report.bounds.bandwidth_bytes, 1e-6),
        ("ms of a call, median and quartiles; line: B2 / rate", took, report.bounds.seconds, 1e3),
    ]
    shapes, top = [text(10, 22, title(report))], 60
    for name, bars, bound, factor in panels:
        if bars:
            shapes += panel(name, sorted(bars, key=lambda bar: bar[1].median), bound, factor, top)
            top += LINE * (len(bars) + 2)
    size = f'width="{WIDTH}" height="{top}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">'
    return "\n".join([head, STYLE, '<rect class="paper" width="100%" height="100%"/>', *shapes, "</svg>"]) + "\n"


def panel(name: str, bars: Bars, bound: float | None, factor: float, top: int) -> list[str]:
    """Return a panel on a linear scale from zero to the greatest quartile."""
    scale = BAR / max(bound or 0, *(spread.high for _, spread in bars))
    shapes = [text(10, top, name)]
    for number, (label, spread) in enumerate(bars):
        y = top + LINE * number + 10
        shapes.append(text(10, y + 14, label))
        shapes.append(f'<rect x="{LABEL}" y="{y}" width="{spread.median * scale:.1f}" height="18" class="bar"/>')
        shapes.append(line(LABEL + spread.low * scale, y + 9, LABEL + spread.high * scale, y + 9, "spread"))
        shapes.append(text(LABEL + spread.high * scale + 6, y + 14, f"{spread.median * factor:.3f}"))
    if bound:
        x = LABEL + bound * scale
        shapes.append(line(x, top + 6, x, top + LINE * len(bars) + 8, "bound"))
    return shapes


def text(x: float, y: float, words: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}" stroke-width="2"/>'
