"""Judge all plans of other synthesizers in a folder, as ``zenc check`` does: a table by tool, and why plans are wrong.

    python -m benchmarks.judge_plans FOLDER --json benchmarks/results/judged_plans.json
    python -m benchmarks.judge_plans --mutants 20000 --json benchmarks/results/plan_mutants.json
    python -m benchmarks.judge_plans --write            # writes the tables of all results into docs/reference/plans.md

The first folder below FOLDER is the name of the tool; rows of tools that FOLDER does not have stay in the file. Seconds
are those of the processor. Mutants are small plans that are damaged at random, of which zenc's verdicts are compared
with those of a brute-force judge. The judges, ``zenc.referee`` and ``tests/support/{foreign,shares}.py``, share
nothing. Of twenty mutants ten are all-to-alls in TE-CCL's JSON, one is an all-gather there, and nine are in MSCCL's
XML. Exit status 1 means that they disagree about one, which is printed.
"""

import json
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.pages import DOCS, LEFT, RESULTS, RIGHT, Part, new_parser, save_json, table
from tests.support import foreign, shares
from zenc.errors import PlanError, ZencError
from zenc.referee.open import check_plan, kind_of

Row = dict[str, Any]
VERDICTS = ("proved", "wrong", "not judged")


def judged(folder: Path) -> Iterator[Row]:
    """Yield a row for each file below ``folder`` that is a plan: tool, verdict, ids and first message, seconds."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and kind_of(path) is not None:
            yield _judged(path, path.relative_to(folder))


def _judged(path: Path, name: Path) -> Row:
    began = time.process_time()
    of: Row = {"plan": str(name), "tool": name.parts[0]}
    try:
        report = check_plan(path)
        goal = report.plan.goal
        told: Row = {"verdict": "proved", "collective": goal.collective, "ranks": goal.size}
        told |= {"steps": report.plan.length, "ids": sorted({one.id for one in report.warnings})}
    except ZencError as error:
        first = next(one for one in error.diagnostics if one.severity == "error")
        fails = isinstance(error, PlanError) and first.id in ("unsupported-plan", "malformed-plan", "plan-too-large")
        told = {"verdict": "not judged" if fails else "wrong", "ids": [first.id], "message": first.message}
    return {**of, **told, "seconds": round(time.process_time() - began, 3)}


def tables(rows: Sequence[Row]) -> str:
    """Return the counts of each tool, and the plans that are wrong, as tables in Markdown."""
    of: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        of[row["tool"]].append(row)
    counts = [_counts(tool, each) for tool, each in sorted(of.items())]
    counts.append(_counts("all", rows))
    heads = ("tool", "plans", *VERDICTS, "seconds a plan", "longest")
    first = table(heads, (LEFT, *[RIGHT] * 6), counts)
    return first + "\n\n" + table(("reason", "plans", "for example"), (LEFT, RIGHT, LEFT), _reasons(rows))


def _counts(tool: str, rows: Sequence[Row]) -> tuple[str, ...]:
    seconds = [row["seconds"] for row in rows]
    verdicts = (f"{sum(row['verdict'] == verdict for row in rows)}" for verdict in VERDICTS)
    return (tool, f"{len(rows)}", *verdicts, f"{sum(seconds) / len(seconds):.2f}", f"{max(seconds):.2f}")


def _reasons(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    of: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        for id in row["ids"]:
            of[row["verdict"], row["tool"], id].append(row)
    for (verdict, tool, id), each in sorted(of.items(), key=lambda one: (VERDICTS.index(one[0][0]), one[0])):
        name = each[0]["plan"].split("/", 1)[1]
        yield f"{verdict}, {tool}: `{id}`", str(len(each)), f"`{name}`"


def verdict(text: str, path: Path) -> str:
    """Return the id of zenc's first error about the plan ``text``, or ``proved``; the file ``path`` is written."""
    path.write_text(text, encoding="utf-8")
    try:
        check_plan(path)
    except ZencError as error:
        return next(one.id for one in error.diagnostics if one.severity == "error")
    return "proved"


def mutant(number: int, draw: random.Random) -> tuple[str, bool]:
    """Return a damaged plan, and whether the brute-force judge finds it right."""
    if number % 2:
        data = shares.damaged_shares(shares.teccl_shares(4), draw)
        return foreign.written(data), shares.shares_are_right(data, draw)
    number //= 2
    if number % 10 == 9:
        data = foreign.damaged_flows(foreign.teccl_ring(4), draw)
        return foreign.written(data), foreign.flows_are_right(data)
    bases = foreign.plans()
    text = foreign.damaged(bases[number % len(bases)], draw)
    return text, foreign.is_right(text, draw)


def compared(mutants: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Return how many mutants got each verdict of zenc, and the texts of those about which the judges disagree."""
    draw, found, disagreed = random.Random(seed), Counter[str](), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(mutants):
            text, right = mutant(number, draw)
            told = verdict(text, Path(folder) / "plan")
            found[told] += 1
            if (told == "proved") != right:
                disagreed.append(f"<!-- zenc: {told}; by brute force: {'right' if right else 'wrong'} -->\n{text}")
    return found, disagreed


def try_mutants(mutants: int, seed: int, file: Path | None) -> int:
    """Print what became of ``mutants``; returns 1 if judges disagree about one, else 0."""
    found, disagreed = compared(mutants, seed)
    print("\n".join([*disagreed, *(f"{number:>8,}  {id}" for id, number in found.most_common())]))
    print(f"{mutants:,} mutants, {len(disagreed)} disagreements")
    told = {"mutants": mutants, "seed": seed, "disagreements": len(disagreed)}
    save_json(file, {**told, "verdicts": dict(found.most_common())})
    return 1 if disagreed else 0


PAGE = DOCS / "reference" / "plans.md"
JUDGED = Part(PAGE, "<!-- judged plans -->", "<!-- end of judged plans -->", RESULTS / "judged_plans.json")
MUTANTS = Part(PAGE, "<!-- plan mutants -->", "<!-- end of plan mutants -->", RESULTS / "plan_mutants.json")


def with_results(page: str) -> str:
    """Return the page with the tables of the results of plans and of mutants."""
    of = MUTANTS.kept()
    verdicts = ", ".join(f"{number:,} `{id}`" for id, number in of["verdicts"].items())
    said = f"Of {of['mutants']:,} mutants the judges disagree about {of['disagreements']}. zenc's verdicts: {verdicts}."
    return MUTANTS.written(JUDGED.written(page, tables(JUDGED.kept()["plans"])), said)


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--mutants", type=int, metavar="COUNT", help="damage so many plans instead")
    parser.add_argument("--seed", type=int, default=1, help="of the damage")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows of all plans, or the verdicts")
    parser.add_argument("--write", action="store_true", help="write the tables of the results into the page")
    options = parser.parse_args()
    if options.write:
        PAGE.write_text(with_results(PAGE.read_text("utf-8")), encoding="utf-8")
        return 0
    if options.mutants:
        return try_mutants(options.mutants, options.seed, options.json)
    if options.folder is None:
        parser.error("give a folder, --mutants or --write")
    rows = list(judged(options.folder))
    if not rows:
        parser.error(f"{options.folder} has no plan")
    print(tables(rows))
    kept = json.loads(options.json.read_text("utf-8"))["plans"] if options.json and options.json.exists() else []
    told = {row["tool"] for row in rows}
    save_json(options.json, {"plans": [row for row in kept if row["tool"] not in told] + rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
