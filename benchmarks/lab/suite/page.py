"""The marked part of benchmarks/reports/benchmarks.md, made of results alone.

What has not been measured is called so, and nothing stands in its place.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.lab.results import Bounds, Row, Spread
from benchmarks.lab.show import cells, label, megabytes, quartiles
from benchmarks.lab.suite.figures import CAPTIONS
from benchmarks.lab.suite.points import POINTS, Point
from benchmarks.lab.suite.results import Result, Results
from benchmarks.lab.suite.targets import TARGETS, Target
from benchmarks.markdown import LEFT, RIGHT, between, table

NOT_MEASURED = "not measured"
NO_BOUNDS = Bounds(0, 0, None)


def with_results(page: str, results: Results, figures: Iterable[str]) -> str:
    """Return ``page`` with its marked part made anew; ``figures`` are the names of the files that there are."""
    points = (section(point, results) for point in POINTS)
    parts = [targets(results), pictures(figures), "## Points", *points, machines(results)]
    return between(page, "\n\n".join(part for part in parts if part))


def targets(results: Results) -> str:
    rows = [row_of_target(target, results) for target in TARGETS]
    verdicts = [row[-1] for row in rows]
    said = ", ".join(f"{verdicts.count(word)} {word}" for word in ("met", "missed", NOT_MEASURED))
    ways = (LEFT, RIGHT, RIGHT, LEFT)
    return f"## Targets\n\nOf {len(rows)}: {said}.\n\n" + table(("", "target", "measured", ""), ways, rows)


def row_of_target(target: Target, results: Results) -> tuple[str, str, str, str]:
    goal = f"{'at least' if target.least else 'at most'} {target.goal:.2f}"
    found = target.quantity(results)
    if found is None:
        return target.what, goal, "", NOT_MEASURED
    return target.what, goal, shown(found), "met" if target.met(found) else "missed"


def shown(found: float | Spread) -> str:
    """Return a number to three digits, so that a near miss of a target of two is seen."""
    return f"{found.median:.3f} ({quartiles(found, 1, 3)})" if isinstance(found, Spread) else f"{found:.3f}"


def pictures(figures: Iterable[str]) -> str:
    return "\n\n".join(f"![{CAPTIONS[name.removesuffix('.svg')]}](../../docs/benchmarks/{name})" for name in figures)


def section(point: Point, results: Results) -> str:
    """Return one point: its settings, a row for each peer, and how it was measured."""
    title = f"### `{point.name}`: {point.shows}"
    if point.name not in results:
        return f"{title}\n\nNot measured."
    result = results[point.name]
    return "\n\n".join((title, f"{result.title}.", rows_of(result), foot(result)))


def rows_of(result: Result) -> str:
    """Return the rows without empty columns."""
    base, by = result.best(), result.bounds
    bytes_ = ("counted MB", "sent MB", "/ B2", "received MB", "/ B1")
    heads = ("", *bytes_, "ms", "quartiles", "/ bound", f"over `{base}`", "quartiles", "wire", "cpu")
    ordered = sorted(result.rows.items(), key=lambda item: item[1].sent or item[1].counted_sent or 0)
    rows = [named(name, row, result, base) for name, row in ordered]
    if by:
        seconds = f"{by.seconds * 1e3:.1f}" if by.seconds else ""
        bound = ("bounds", "", megabytes(by.bandwidth_bytes), "", megabytes(by.receive_bytes), "", seconds)
        rows.insert(0, (*bound, *[""] * (len(heads) - len(bound))))
    kept = [k for k in range(len(heads)) if any(row[k] for row in rows)]
    shown = [[row[k] for k in kept] for row in (heads, *rows)]
    return table(shown[0], (LEFT, *[RIGHT] * (len(kept) - 1)), shown[1:])


def named(name: str, row: Row, result: Result, base: str) -> tuple[str, ...]:
    """Return the row of a peer; the one that the others are compared with stands out."""
    title = f"**`{label(name)}`**" if name == base else f"`{label(name)}`"
    return title, *cells(row, result.over(name, base), result.bounds or NO_BOUNDS)


def foot(result: Result) -> str:
    rounds = max(row.rounds for row in result.rows.values())
    took = f"{rounds} rounds in {result.seconds:.0f} s, in which others used {result.others * 100:.1f} % of the cores"
    apart = f"; losses differ by {result.apart:.1e} at most" if result.apart is not None else ""
    return f"{took}{apart}; commit {result.machine['commit']}:\n\n```\n{result.command}\n```"


def machines(results: Results) -> str:
    """Return a line for each machine with its versions, and its measurements."""
    points: dict[str, list[str]] = {}
    for name, result in results.items():
        points.setdefault(machine(result), []).append(f"`{name}`")
    if not points:
        return ""
    lines = [f"* {text}: {', '.join(names)}" for text, names in points.items()]
    return "## Machines\n\n" + "\n".join(lines)


def machine(result: Result) -> str:
    has = result.machine
    versions = f"Linux {has['kernel']}, Python {has['python']}, PyTorch {has['torch']}, {has['compiler']}"
    return f"{has['cores']} cores of {has['processor']}, {versions}, zenc {has['zenc']}"
