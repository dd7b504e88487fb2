"""The marked part of benchmarks/reports/benchmarks.md, made of results alone: targets, figures, points.

    Target = what x at least or at most x number x quantity of results

What has not been measured is called so, and nothing stands in its place. *Best* is the fastest of zenc's own schemes at
the point, by its median. Bytes are those that schemes count themselves.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.lab.results import Row, Spread
from benchmarks.lab.show import label, quartiles, table_of_rows
from benchmarks.lab.suite.figures import CAPTIONS, bounds
from benchmarks.lab.suite.points import OURS, POINTS, RANGE, Point
from benchmarks.lab.suite.results import Result, Results
from benchmarks.pages import LEFT, RIGHT, between, table

NOT_MEASURED = "not measured"


Cells = Callable[[str, Result], Iterable[str]]
"""A function from a way and a result to the cells of the way."""
Quantity = Callable[[Results], float | Spread]
"""A function from results to a quantity; raises KeyError where it has not been measured."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target for a quantity; ``least``: whether ``goal`` is the least that is allowed, or the most."""

    what: str
    least: bool
    goal: float
    quantity: Quantity

    def met(self, found: float | Spread) -> bool:
        value = found.median if isinstance(found, Spread) else found
        return value >= self.goal if self.least else value <= self.goal


def time_over_best(point: str, peer: str) -> Quantity:
    return lambda results: results[point].over(peer, results[point].best())


def bytes_over_least(point: str, peer: str) -> Quantity:
    """Return the bytes over those of ours that send least, which need not be the fastest."""

    def quantity(results: Results) -> float:
        sent = {name: row.counted_sent or 0 for name, row in results[point].rows.items()}
        return sent[peer] / min(sent[name] for name in OURS if name in sent)

    return quantity


def bytes_over_bound(point: str) -> Quantity:
    return lambda results: (best(results[point]).counted_sent or 0) / 1e6 / bounds(results[point])[0]


def time_over_bound(point: str) -> Quantity:
    return lambda results: best(results[point]).seconds.median * 1e3 / bounds(results[point])[1]


def slowdown(point: str, usual: str) -> Quantity:
    """Return the slowdown of the scheme that is best at ``usual``, from two runs, so not paired."""

    def quantity(results: Results) -> float:
        name = results[usual].best()
        return results[point].rows[name].seconds.median / results[usual].rows[name].seconds.median

    return quantity


def best(result: Result) -> Row:
    return result.rows[result.best()]


def rows_over_best(of: str, peer: str, goals: dict[int, float]) -> list[Target]:
    """Return targets of ``peer`` on rows at 2 %, for each number of ranks."""
    return [
        Target(f"{of} over best, N = {size}", True, goal, time_over_best(f"rows-{size}", peer))
        for size, goal in goals.items()
    ]


ZEN = {4: 1.22, 8: 1.14, 16: 1.08}
TARGETS = (
    *rows_over_best("PyTorch's sparse all-reduce", "torch-coo", {2: 1.85, 4: 1.38, 8: 1.68, 16: 2.25}),
    *rows_over_best("`sparcml`", "sparcml", {2: 1.00, 4: 1.12, 8: 1.22, 16: 1.35}),
    *rows_over_best("Balanced Parallelism as published, `zen`,", "zen", ZEN),
    *rows_over_best("Balanced Parallelism of ours, `balanced`,", "balanced", ZEN),
    Target("elements at 1 %: `zen` over best", True, 1.20, time_over_best("elements-8", "zen")),
    Target(
        "elements at 5 %, bytes: `zen` over ours that sends least",
        True,
        1.08,
        bytes_over_least("elements-8-5pct", "zen"),
    ),
    Target("ranges of sorted rows over best", True, 3.5, time_over_best("range-8", RANGE)),
    Target(
        "training: a step of DDP with sparse gradients over one with best",
        True,
        1.6,
        time_over_best("training-8", "ddp-sparse"),
    ),
    Target("Horovod over best", True, 1.5, time_over_best("horovod-8", "horovod-coo")),
    *(
        Target(f"bytes of best over B2, N = {size}", False, 1.02, bytes_over_bound(f"rows-{size}"))
        for size in (2, 4, 8, 16)
    ),
    Target("time of best over B2 / rate, N = 8", False, 1.12, time_over_bound("rows-8")),
    Target("best with queues of 256 kB over best with those of 2 MB", False, 1.05, slowdown("rows-8-queue", "rows-8")),
)


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
    try:
        found = target.quantity(results)
    except KeyError:
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
    """Return the rows, of which the one that others are compared with stands out."""
    base = result.best()
    ordered = sorted(result.rows.items(), key=lambda item: item[1].sent or item[1].counted_sent or 0)
    titles = {name: f"**`{label(name)}`**" if name == base else f"`{label(name)}`" for name, _ in ordered}
    return table_of_rows([(titles[name], row, result.over(name, base)) for name, row in ordered], base, result.bounds)


def foot(result: Result) -> str:
    rounds = max(row.rounds for row in result.rows.values())
    took = f"{rounds} rounds in {result.seconds:.0f} s, in which others used {result.others * 100:.1f} % of the cores"
    apart = f"; losses differ by {result.apart:.1e} at most" if result.apart is not None else ""
    return f"{took}{apart}; commit {result.machine['commit']}:\n\n```\n{result.command}\n```"


def side_by_side(heads: Sequence[str], ways: Iterable[str], results: Sequence[Result], cells: Cells) -> str:
    """Return a table with a row for each of ``ways``: the ``cells`` of all ``results`` beside each other."""
    rows = ((f"`{label(way)}`", *(cell for result in results for cell in cells(way, result))) for way in ways)
    return table(("", *heads), (LEFT, *[RIGHT] * len(heads)), rows)


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
