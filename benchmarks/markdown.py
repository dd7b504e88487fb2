"""Tables of pages, and the marked parts of pages that results make anew."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

LEFT, RIGHT = "---", "---:"
"""Alignments of a column, in the line under the heads."""
BEGIN, END = "<!-- results: written by the suite -->", "<!-- end of results -->"
"""Marks of a part; pages of other writers begin theirs with another one."""


def table(heads: Sequence[str], ways: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of ``rows`` with a cell for each of ``heads``; ``ways``: LEFT or RIGHT for each column."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, ways, *rows))


def between(page: str, inner: str, begin: str = BEGIN, end: str = END) -> str:
    """Return ``page`` with ``inner`` as its part between two marks; raises ValueError where it has none."""
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no part between {begin} and {end}")
    return f"{before}{begin}\n\n{inner}\n\n{end}{after}"


def show_or_write(about: str | None, page: Path, tables: Callable[[], str], begin: str, end: str) -> int:
    """Print ``tables()``, or put it between the marks of ``page`` if ``--write`` is given; return the exit status."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write them into {page.name}")
    if parser.parse_args().write:
        page.write_text(between(page.read_text("utf-8"), tables(), begin, end), encoding="utf-8")
    else:
        print(tables())
    return 0
