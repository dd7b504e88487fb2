"""Zen's evaluation, computed again by zenc's cost model: the numbers of benchmarks/reports/reproduction.md.

    python -m benchmarks.reproduce            prints what the page says
    python -m benchmarks.reproduce --write    writes benchmarks/reports/reproduction.md, its JSON and its figures anew
    python -m benchmarks.reproduce --page     the same without computing: from the JSON that there is

No GPU and no network are used, and no time is measured: half a minute of one core.
"""

from benchmarks.pages import DOCS, ROOT, Part, compute_or_page
from benchmarks.reproduce.page import BEGIN, figures, part
from benchmarks.reproduce.results import Results, results

PART = Part(ROOT / "benchmarks" / "reports" / "reproduction.md", BEGIN, results=DOCS / "reproduction.json")


def draw(found: Results) -> None:
    folder = DOCS / "reproduction"
    folder.mkdir(exist_ok=True)
    for name, svg in figures(found).items():
        (folder / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    compute_or_page(__doc__, PART, results, part, draw)
