"""Zen's evaluation, computed again by zenc's cost model: the numbers of benchmarks/reports/reproduction.md.

    python -m benchmarks.reproduce            prints what the page says
    python -m benchmarks.reproduce --write    writes benchmarks/reports/reproduction.md, its JSON and its figures anew
    python -m benchmarks.reproduce --page     the same without computing: from the JSON that there is

No GPU and no network are used, and no time is measured: half a minute of one core.
"""

from __future__ import annotations

from benchmarks.pages import DOCS, ROOT, json_of, new_parser, save_json
from benchmarks.reproduce.page import figures, part, with_results
from benchmarks.reproduce.results import Results, results

PAGE = ROOT / "benchmarks" / "reports" / "reproduction.md"
JSON, FOLDER = DOCS / "reproduction.json", DOCS / "reproduction"


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--write", action="store_true", help="write the page, its JSON and its figures")
    parser.add_argument("--page", action="store_true", help="write the page and its figures from the JSON")
    options = parser.parse_args()
    found = json_of(JSON) if options.page else results()
    if options.write or options.page:
        write(found)
    else:
        print(part(found))


def write(found: Results) -> None:
    save_json(JSON, found)
    PAGE.write_text(with_results(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    FOLDER.mkdir(exist_ok=True)
    for name, svg in figures(found).items():
        (FOLDER / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
