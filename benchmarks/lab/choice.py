"""Measurements of ``auto`` beside its candidates, at all workloads and ranks of the lab: docs/guides/choice.md.

    python -m benchmarks.lab.choice                     all points: see --list for how long it takes
    python -m benchmarks.lab.choice --only rows-8       some of them again; the results of the others stay
    python -m benchmarks.lab.choice --page              no measurement: the table from the results that there are

Each point goes to docs/benchmarks/choice/NAME.json. ``auto`` is measured once it has chosen; candidates and ``auto``
take turns, so that their times are compared round by round.
"""

from benchmarks.lab.suite.page import NOT_MEASURED
from benchmarks.lab.suite.points import point
from benchmarks.lab.suite.results import Result, Results
from benchmarks.lab.suite.run import Suite, carry_out
from benchmarks.pages import LEFT, ROOT, between, table

PAGE, FOLDER = ROOT / "docs" / "guides" / "choice.md", ROOT / "docs" / "benchmarks" / "choice"
AUTO = "auto"
SPARSE, DENSE = ("balanced", "holders", "hierarchical_centralization"), "dense_ring"
"""The candidates of ``auto``. The dense one takes up to a minute where it is hopeless, so it is one point's alone."""
SIZES = (2, 4, 8, 16)
WORKLOADS = {
    "rows": ("rows at 2 %", "--workload rows", 8),
    "rows-10pct": ("rows at 10 %", "--workload rows --density 0.1", 20),
    "rows-permuted": ("rows at 2 % in a random order", "--workload rows --permuted", 8),
    "trace": ("rows of a real training step", "--workload trace", 5),
    "elements": ("single elements at 1 %", "--workload elements", 6),
    "elements-5pct": ("single elements at 5 %", "--workload elements --density 0.05", 9),
    "full": ("one million elements at 95 %", "--workload elements --units 1000000 --density 0.95", 12),
}
"""Name -> what it is, words, and about how many seconds a point takes for each rank."""
WITHIN = 1.05


POINTS = tuple(
    point(f"{name}-{size}", f"{shows}, {size} ranks", 8 + size * seconds,
          f"--ranks {size} --rounds 5 --dense-rounds 5 {words}", (AUTO, *SPARSE, *([DENSE] if name == "full" else [])),
          ())
    for name, (shows, words, seconds) in WORKLOADS.items()
    for size in SIZES
)  # fmt: skip


def best(result: Result) -> str:
    return min((name for name in result.rows if name != AUTO), key=lambda name: result.rows[name].seconds.median)


def chosen(result: Result) -> str:
    """Return the candidate that sends exactly what ``auto`` sent, which is what it runs."""
    sent = result.rows[AUTO].counted_sent
    return next((name for name, row in result.rows.items() if name != AUTO and row.counted_sent == sent), "none here")


def within(result: Result) -> bool:
    return result.over(AUTO, best(result)).median <= WITHIN


def cell_of(name: str, results: Results) -> str:
    """Return the candidate that ``auto`` runs at a point, and its time over that of the best one."""
    if name not in results:
        return NOT_MEASURED
    result = results[name]
    return f"`{chosen(result)}` {result.over(AUTO, best(result)).median:.3f}"


def with_table(page: str, results: Results) -> str:
    near = sum(within(result) for result in results.values())
    said = f"Of {len(POINTS)} points {len(results)} are measured; at {near} of them `auto` is within 5 % of the best."
    rows = ((of[0], *(cell_of(f"{name}-{size}", results) for size in SIZES)) for name, of in WORKLOADS.items())
    heads = ("", *(f"{size} ranks" for size in SIZES))
    return between(page, f"{said}\n\n{table(heads, [LEFT] * len(heads), rows)}")


SUITE = Suite("benchmarks.lab.choice", __doc__, POINTS, FOLDER, PAGE, with_table)

if __name__ == "__main__":
    carry_out(SUITE)
