"""Parts of pages that programs make of their results: options, JSON, tables, and the marks around these."""

import argparse
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS, DOCS = ROOT / "benchmarks" / "results", ROOT / "docs"
LEFT, RIGHT = "---", "---:"
"""Alignments of a column, in the line under the heads."""
BEGIN, END = "<!-- results: written by the suite -->", "<!-- end of results -->"
"""Marks of a part; pages of other writers begin theirs with another one."""


def new_parser(about: str | None, module: str = "") -> argparse.ArgumentParser:
    """Return a parser that shows the text ``about`` the program as it is; ``module``: its name after ``python -m``."""
    layout = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(
        prog=f"python -m {module}" if module else None, description=about, formatter_class=layout
    )


def parser_of(about: str | None, **defaults: int) -> argparse.ArgumentParser:
    """Return a parser with an option for each of ``defaults``, whole numbers, and ``--json`` for a file of results."""
    parser = new_parser(about)
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"({default})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where results go")
    return parser


def json_of(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def save_json(file: Path | None, data: Any) -> None:
    """Write ``data`` to ``file``, where one was asked for."""
    if file:
        file.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def table(heads: Sequence[str], ways: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of ``rows`` with a cell for each of ``heads``; ``ways``: LEFT or RIGHT for each column."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, ways, *rows))


def table_of(rows: Iterable[Mapping[str, Any]], columns: Sequence[tuple[str, str]], left: int, *more: int) -> str:
    """Return a table of ``rows``, whose cells the formats of ``columns``, heads and formats, make of each row.

    The first ``left`` columns are aligned to the left, and those numbered ``more``; all others to the right.
    """
    ways = [LEFT if at < left or at in more else RIGHT for at in range(len(columns))]
    cells = ([shape.format_map(row) for _, shape in columns] for row in rows)
    return table([head for head, _ in columns], ways, cells)


def between(page: str, inner: str, begin: str = BEGIN, end: str = END) -> str:
    """Return ``page`` with ``inner`` as its part between two marks; raises ValueError where it has none."""
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no part between {begin} and {end}")
    return f"{before}{begin}\n\n{inner}\n\n{end}{after}"


Draw = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of ``page`` between two marks. ``results``: the file of what it is made of, where one program has both."""

    page: Path
    begin: str = BEGIN
    end: str = END
    results: Path | None = None

    def written(self, page: str, text: str) -> str:
        return between(page, text, self.begin, self.end)

    def write(self, text: str) -> None:
        self.page.write_text(self.written(self.page.read_text("utf-8"), text), encoding="utf-8")

    def kept(self) -> Any:
        assert self.results
        return json_of(self.results)

    def keep(self, file: Path | None, data: Any, text: str) -> str:
        """Write ``data`` to ``file``, if there is one, and ``text`` into the page if it is that of its results."""
        save_json(file, data)
        if file and file.resolve() == self.results:
            self.write(text)
        return text


def show_or_write(about: str | None, part: Part, made: Callable[[], str]) -> None:
    """Print the text that is ``made``, and put it into its page if ``--write`` is given."""
    parser = new_parser(about)
    parser.add_argument("--write", action="store_true", help=f"write it into {part.page.name}")
    write, text = parser.parse_args().write, made()
    print(text)
    if write:
        part.write(text)


def compute_or_page(
    about: str | None, part: Part, computed: Callable[[], Any], told: Callable[[Any], str], draw: Draw = lambda _: None
) -> None:
    """Print the text ``told`` of ``computed`` results; write it with ``--write``, or with ``--page`` from the JSON.

    ``draw`` is called with results whose page is written.
    """
    parser = new_parser(about)
    parser.add_argument("--write", action="store_true", help="write the page and its JSON")
    parser.add_argument("--page", action="store_true", help="write the page from the JSON that there is")
    options = parser.parse_args()
    found = part.kept() if options.page else computed()
    if not options.write and not options.page:
        return print(told(found))
    part.keep(part.results, found, told(found))
    draw(found)


def rounded(value: Any, digits: int = 5) -> Any:
    """Return ``value`` with all its fractions rounded to ``digits``; None for numbers that are not finite."""
    if isinstance(value, Mapping):
        return {key: rounded(each, digits) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each, digits) for each in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value
