"""Measurements of dense gradients for 2, 4 and 8 hosts, and of training: the tables of docs/guides/compression.md.

    python -m benchmarks.lab.dense.suite                        all points: see --list for how long it takes
    python -m benchmarks.lab.dense.suite --only dense-4         one of them again; the results of the others stay
    python -m benchmarks.lab.dense.suite --page                 no measurement: the page from the results that there are

Each point goes to docs/benchmarks/dense/NAME.json.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.lab.dense.settings import TORCH
from benchmarks.lab.settings import NO_SYNC
from benchmarks.lab.show import label
from benchmarks.lab.suite.page import NOT_MEASURED, Cells, side_by_side
from benchmarks.lab.suite.points import Point, point
from benchmarks.lab.suite.results import Result, Results
from benchmarks.lab.suite.run import Suite, carry_out
from benchmarks.pages import LEFT, RIGHT, ROOT, between, table

PAGE, FOLDER = ROOT / "docs" / "guides" / "compression.md", ROOT / "docs" / "benchmarks" / "dense"
BALANCED_TOP = "benchmarks/lab/schemes/balanced_top.zen"
SCHEMES = ("topk_a2a", BALANCED_TOP, "one_bit", "qsgd")
BASE = "torch-dense"
POINTS = tuple(
    point(f"dense-{size}", f"{size} hosts", 30 + 5 * size, f"--ranks {size} --rounds 5", SCHEMES, TORCH,
          "benchmarks.lab.dense")
    for size in (2, 4, 8)
)  # fmt: skip
TENSORS, ROWS = 32, 16000
CUT = point("tensors-4", f"4 hosts, {TENSORS} tensors", 330,
            f"--ranks 4 --rounds 5 --dense-rounds 1 --rows {ROWS} --tensors {TENSORS}",
            SCHEMES, (BASE,), "benchmarks.lab.dense")  # fmt: skip
"""The point of a larger model's gradient, in several tensors whose sums overlap."""
STEPS = 20
"""Rounds of a point of training, in all of which dense all-reduces take part."""
TRAINED = tuple(
    point(f"steps-{size}", f"steps, {size} hosts", 25 + 5 * size,
          f"--characters --ranks {size} --rounds {STEPS} --dense-rounds {STEPS}", SCHEMES, (*TORCH, NO_SYNC),
          "benchmarks.lab.dense")
    for size in (2, 4)
)  # fmt: skip
ALL = (*POINTS, CUT, *TRAINED)
EARLY, LATE = slice(0, 5), slice(15, 20)
"""Steps whose mean loss is shown."""
MORE_HEADS = ("of it communication", "loss, steps 1 to 5", "16 to 20")


@dataclass(frozen=True, slots=True)
class Goal:
    """The number of times that ``peer`` is to be as fast as DDP's dense all-reduce, at least, among four hosts."""

    peer: str
    times: float


AT = "dense-4"
GOALS = (Goal("topk_a2a", 1.9), Goal(BALANCED_TOP, 20.0), Goal("one_bit", 12.0))
FULL = 1 / 1.1
"""Share of the fullest link that is to be filled: times are within 10 % of bytes over rate."""


def goals(results: Results) -> str:
    """Return a row a goal: met, missed, or not measured.

    The speed of one tensor, and the fill of one and of several.
    """
    rows = []
    for goal in GOALS:
        one, filled = _measured(results, AT, goal.peer), _measured(results, CUT.name, goal.peer)
        faster = results[AT].over(BASE, goal.peer).median if one is not None else None
        numbers = _held(faster, goal.times), ("" if one is None else f"{one:.2f}",), _held(filled, FULL)
        rows.append((f"`{label(goal.peer)}`", f"{goal.times:g}", *numbers[0], *numbers[1], *numbers[2]))
    filled_at_least = f"by {TENSORS} tensors, at least {FULL:.2f}"
    heads = ("4 hosts", "times as fast as dense, at least", "measured", "", "link filled", filled_at_least, "")
    return table(heads, (LEFT, RIGHT, RIGHT, LEFT, RIGHT, RIGHT, LEFT), rows)


def _measured(results: Results, at: str, peer: str) -> float | None:
    """Return the share of the link that ``peer`` filled; None where it was not measured."""
    row = results[at].rows.get(peer) if at in results else None
    return None if row is None else row.wire


def _held(found: float | None, least: float) -> tuple[str, str]:
    """Return the measured value, and whether it is enough."""
    return ("", NOT_MEASURED) if found is None else (f"{found:.2f}", "met" if found >= least else "missed")


def section(points: Iterable[Point], more: Sequence[str], cells: Cells, results: Results) -> str:
    """Return a row for each way, in the order of its bytes, with ``cells`` of each of ``points``."""
    measured = [point for point in points if point.name in results]
    heads = [head for point in measured for head in (point.shows, *more)]
    shown = [results[point.name] for point in measured]
    return side_by_side(heads, by_bytes(shown[0]), shown, cells)


def by_bytes(result: Result) -> list[str]:
    return sorted(result.rows, key=lambda name: -(result.rows[name].sent or 0))


def cells_of(name: str, result: Result) -> tuple[str, ...]:
    """Return ms, and in brackets how many times as fast as dense it is."""
    if name not in result.rows:
        return ("",)
    return (f"{result.rows[name].seconds.median * 1e3:.1f} ({result.over(BASE, name).median:.2f})",)


def cells_of_training(name: str, result: Result) -> tuple[str, ...]:
    """Return also the share of communication, of a step beyond one in which nothing is summed, and losses."""
    if name == NO_SYNC:
        return *cells_of(name, result), *[""] * len(MORE_HEADS)
    share, losses = 1 - result.over(NO_SYNC, name).median, (result.losses or {})[name]
    return *cells_of(name, result), f"{share:.2f}", *(f"{fmean(losses[steps]):.2f}" for steps in (EARLY, LATE))


def with_tables(page: str, results: Results) -> str:
    sums, steps = ((*POINTS, CUT), (), cells_of), (TRAINED, MORE_HEADS, cells_of_training)
    foot = f"Others used at most {max(result.others for result in results.values()) * 100:.1f} % of the cores."
    return between(page, "\n\n".join((goals(results), section(*sums, results), section(*steps, results), foot)))


SUITE = Suite("benchmarks.lab.dense.suite", __doc__, ALL, FOLDER, PAGE, with_tables)

if __name__ == "__main__":
    carry_out(SUITE)
