"""Zen's evaluation, computed again by zenc's cost model: the numbers of benchmarks/reports/reproduction.md.

    python -m benchmarks.reproduce            prints what the page says
    python -m benchmarks.reproduce --write    writes benchmarks/reports/reproduction.md, its JSON and its figures anew
    python -m benchmarks.reproduce --page     the same without computing: from the JSON that there is

No GPU and no network are used, and no time is measured: half a minute of one core.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.reproduce.page import figures, part, with_results
from benchmarks.reproduce.results import Results, results

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = Path(__file__).resolve().parents[1] / "reports" / "reproduction.md"
JSON, FOLDER = DOCS / "reproduction.json", DOCS / "reproduction"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the page, its JSON and its figures")
    parser.add_argument("--page", action="store_true", help="write the page and its figures from the JSON")
    options = parser.parse_args()
    found = json.loads(JSON.read_text(encoding="utf-8")) if options.page else results()
    if options.write or options.page:
        write(found)
    else:
        print(part(found))


def write(found: Results) -> None:
    JSON.write_text(text_of(found), encoding="utf-8")
    PAGE.write_text(with_results(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    FOLDER.mkdir(exist_ok=True)
    for name, svg in figures(found).items():
        (FOLDER / name).write_text(svg, encoding="utf-8")


def text_of(found: Results) -> str:
    """Return the results as JSON, as the file has them."""
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    main()
