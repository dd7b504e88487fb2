"""Measures the points of the suite, one after the other, and writes benchmarks/reports/benchmarks.md anew.

    python -m benchmarks.lab.suite                      all points: see --list for how long it takes
    python -m benchmarks.lab.suite --only rows-8        some of them again; the results of the others stay
    python -m benchmarks.lab.suite --page               no measurement: the page from the results that there are

Each point goes to docs/benchmarks/NAME.json. A point that fails is named at the end; the others are measured, and an
older result of it stays. Times mean something only on a machine that does nothing else.
"""

from benchmarks.lab.suite.figures import figures
from benchmarks.lab.suite.page import with_results
from benchmarks.lab.suite.points import POINTS
from benchmarks.lab.suite.results import Results
from benchmarks.lab.suite.run import Suite, carry_out
from benchmarks.pages import DOCS, ROOT

PAGE, FOLDER = ROOT / "benchmarks" / "reports" / "benchmarks.md", DOCS / "benchmarks"


def made(page: str, results: Results) -> str:
    """Return the page of ``results``; its figures are written, and those without results removed."""
    drawn = figures(results)
    for old in FOLDER.glob("*.svg"):
        if old.name not in drawn:
            old.unlink()
    for name, svg in drawn.items():
        (FOLDER / name).write_text(svg, encoding="utf-8")
    return with_results(page, results, drawn)


SUITE = Suite("benchmarks.lab.suite", __doc__, POINTS, FOLDER, PAGE, made)

if __name__ == "__main__":
    carry_out(SUITE)
