"""Measurements of training steps by strategies, for 4 and 8 hosts: the tables of docs/guides/strategies.md.

    python -m benchmarks.lab.steps.suite                        all points: see --list for how long it takes
    python -m benchmarks.lab.steps.suite --only steps-4         one of them again; the results of the others stay
    python -m benchmarks.lab.steps.suite --page                 no measurement: the page from the results that there are

Each point goes to docs/benchmarks/steps/NAME.json, and the strategy that was found for it beside it. Two more points
are of the word model; what was predicted for them, ``python -m benchmarks.predicted_steps --write`` says.
"""

from pathlib import Path
from statistics import fmean

from benchmarks.lab.settings import NO_SYNC
from benchmarks.lab.suite.page import NOT_MEASURED, side_by_side
from benchmarks.lab.suite.points import TRAINING, Point
from benchmarks.lab.suite.points import point as shaped
from benchmarks.lab.suite.results import Result, Results
from benchmarks.lab.suite.run import Suite, carry_out
from benchmarks.pages import LEFT, RIGHT, ROOT, between, table

TEXTS = "benchmarks/lab/strategies"
ALLOWED = f"{TEXTS}/allowed.zen"
"""The file of the schemes that strategies may use, those by hand and the one that is searched."""
NAMES = (
    *("nothing", "half", "levels", "topk", "greatest", "large", "largest", "ends"),
    *("one_group", "one_group_half"),
)
HAND_WRITTEN = tuple(f"{TEXTS}/{name}.zen" for name in NAMES)
BY_DDP = "torch-fp16"
"""DDP with its hook that casts to 16 bits."""


RESULTS = "docs/benchmarks/steps"
PAGE, FOLDER = ROOT / "docs" / "guides" / "strategies.md", ROOT / RESULTS
SIZES = (4, 8)


def tuned_file(size: int) -> str:
    """Return the file of the strategy that was found for ``size`` hosts, from the root of the repository."""
    return f"{RESULTS}/tuned-{size}.zen"


POINTS = tuple(
    Point(f"steps-{size}", f"{size} hosts", ("--network", "shaped", "--ranks", str(size), "--rounds", "40",
          "--tuned", tuned_file(size)), 120 + 15 * size, "benchmarks.lab.steps")
    for size in SIZES
)  # fmt: skip
WORD_SCHEMES = ("holders", "balanced", "sparcml", "agsparse")
WORDS = tuple(
    shaped(f"words-{size}", f"Steps of the word model, {size} hosts", 60 + 10 * size, f"--ranks {size} --rounds 11",
          WORD_SCHEMES, ("ddp-sparse", NO_SYNC), TRAINING)
    for size in SIZES
)  # fmt: skip
"""Points that predictions of steps are held against: docs/reference/cost.md has them."""
ALL = (*POINTS, *WORDS)
WITHIN, FASTER = 1.05, 1.5
"""Goals: of the best by hand at most, and of DDP's hook at least."""
LATE = slice(15, 20)
"""Steps whose mean loss is shown."""
MORE_HEADS = ("over tuned", "off", "loss")
TUNED = "tuned"


def tuned_of(result: Result) -> str:
    return result.settings.reference


def best_by_hand(result: Result) -> str:
    """Return the way with the least median among those that were written by hand."""
    return min(HAND_WRITTEN, key=lambda name: result.rows[name].seconds.median)


def goals(results: Results) -> str:
    """Return two rows for each number of hosts: met, missed, or not measured."""
    rows = []
    for point in POINTS:
        within = (point.shows, f"tuned over the best by hand, at most {WITHIN:g}")
        faster = (point.shows, f"DDP's fp16 hook over tuned, at least {FASTER:g}")
        if point.name not in results:
            rows += [(*within, NOT_MEASURED, ""), (*faster, NOT_MEASURED, "")]
            continue
        result = results[point.name]
        near = result.over(tuned_of(result), best_by_hand(result)).median
        times = result.over(BY_DDP, tuned_of(result)).median
        rows.append((*within, f"{near:.3f}", "met" if near <= WITHIN else "missed"))
        rows.append((*faster, f"{times:.2f}", "met" if times >= FASTER else "missed"))
    return table(("", "goal", "measured", ""), (LEFT, LEFT, RIGHT, LEFT), rows)


def ways_of(result: Result) -> list[str]:
    """Return what the ways are called, the quickest first."""
    ordered = sorted(result.rows, key=lambda name: result.rows[name].seconds.median)
    return [TUNED if name == tuned_of(result) else Path(name).stem for name in ordered]


def name_in(called: str, result: Result) -> str:
    return tuned_of(result) if called == TUNED else next(name for name in result.rows if Path(name).stem == called)


def entries_of(file: str) -> str:
    """Return the rules and the groups of the strategy in ``file``, without its name and doc."""
    text = Path(ROOT, file).read_text(encoding="utf-8")
    lines = text[text.index("\nstrategy ") + 1 :].splitlines()[2:-1]
    return ", ".join(f"`{line.strip()}`" for line in lines)


def cells_of(called: str, result: Result) -> tuple[str, ...]:
    """Return the cells of a way; its error is of the predicted ratio to the strategy that was found."""
    name = name_in(called, result)
    tuned, predicted = tuned_of(result), result.predicted or {}
    over = result.over(name, tuned).median
    off = f"{predicted[name] / predicted[tuned] / over - 1:+.1%}" if name in predicted and name != tuned else ""
    loss = "" if name == NO_SYNC else f"{fmean((result.losses or {})[name][LATE]):.2f}"
    return f"{result.rows[name].seconds.median * 1e3:.1f}", f"{over:.2f}", off, loss


def with_tables(page: str, results: Results) -> str:
    shown = [results[point.name] for point in POINTS if point.name in results]
    heads = [head for of in shown for head in (f"{of.settings.ranks} hosts, ms", *MORE_HEADS)]
    steps = side_by_side(heads, ways_of(shown[0]), shown, cells_of)
    found = {entries_of(tuned_of(of)): of.settings.ranks for of in reversed(shown)}
    tuned = "; ".join(f"{entries} from {ranks} hosts on" for entries, ranks in found.items())
    foot = f"`{TUNED}` is {tuned}. Others used at most {max(of.others for of in shown) * 100:.1f} % of the cores."
    return between(page, "\n\n".join((goals(results), steps, foot)))


SUITE = Suite("benchmarks.lab.steps.suite", __doc__, ALL, FOLDER, PAGE, with_tables)

if __name__ == "__main__":
    carry_out(SUITE)
