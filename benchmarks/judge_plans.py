"""Judge all plans of other synthesizers in a folder, as ``zenc check`` does: a table by tool, and why plans are wrong.

    python -m benchmarks.judge_plans FOLDER --json benchmarks/results/judged_plans.json

    python -m benchmarks.judge_plans --write            # writes the tables of all results into docs/reference/plans.md

The first folder below FOLDER is the name of the tool. Seconds are those of the processor.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.markdown import LEFT, RIGHT, between, table
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
        told: Row = {
            "verdict": "proved",
            "collective": goal.collective,
            "ranks": goal.size,
            "steps": len(report.plan.steps),
        }
        told["ids"] = sorted({one.id for one in report.warnings})
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
        first = each[0]
        said = f": {first['message']}" if "message" in first else ""
        name = first["plan"].split("/", 1)[1]
        yield f"{verdict}, {tool}: `{id}`", str(len(each)), f"`{name}`{said}".replace("|", "\\|")


PAGE = Path(__file__).parents[1] / "docs" / "reference" / "plans.md"
RESULTS = Path(__file__).parent / "results"
MARKS = "<!-- judged plans -->", "<!-- end of judged plans -->"
MUTANTS = "<!-- plan mutants -->", "<!-- end of plan mutants -->"


def with_results(page: str) -> str:
    """Return the page with the tables of the results of this program and of ``plan_mutants``."""
    rows = json.loads((RESULTS / "judged_plans.json").read_text(encoding="utf-8"))["plans"]
    of = json.loads((RESULTS / "plan_mutants.json").read_text(encoding="utf-8"))
    verdicts = ", ".join(f"{number:,} `{id}`" for id, number in of["verdicts"].items())
    said = f"Of {of['mutants']:,} mutants the judges disagree about {of['disagreements']}. zenc's verdicts: {verdicts}."
    return between(between(page, tables(rows), *MARKS), said, *MUTANTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--json", metavar="FILE", help="write the rows of all plans")
    parser.add_argument("--write", action="store_true", help="write the tables of the results into the page")
    options = parser.parse_args()
    if options.write:
        PAGE.write_text(with_results(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    if options.folder is None:
        parser.error("give a folder, or --write")
    rows = list(judged(options.folder))
    if not rows:
        parser.error(f"{options.folder} has no plan")
    print(tables(rows))
    if options.json:
        Path(options.json).write_text(json.dumps({"plans": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
