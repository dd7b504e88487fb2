"""``zenc list``: the schemes that come with zenc."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zenc.cli.common import JsonOption, print_json, reporting

if TYPE_CHECKING:
    from zenc.scheme.library import Entry

EXAMPLES = """\b
Examples:
  zenc list
  zenc list --json
"""

TABLE_WIDTH = 120
"""Columns that the table fits; a narrower terminal gets a paragraph for each scheme."""
_ARGUMENTS = re.compile(r"\(.*?\)(?= then | \+ |$)")
HEADINGS = ("name", "communication", "aggregation", "partition", "balance", "formats")


def list_(json: JsonOption = False) -> None:
    """List the schemes that come with zenc, by their four dimensions and what travels in push and pull.

    A terminal also gets what each of them is in a sentence; other programs get one line a scheme, or --json.
    """
    with reporting(json):
        from zenc.scheme.library import shipped

        entries = shipped()
    if json:
        print_json(entries)
    else:
        _show(entries)


def _show(entries: list[Entry]) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    if console.is_terminal and console.width < TABLE_WIDTH:
        for entry in entries:
            console.print(entry["name"], style="bold")
            console.print(f"  {', '.join(cell for cell in _cells(entry)[1:] if cell != '-')}")
            console.print(f"  {entry['summary']}")
        return
    heading, *rows = _table([HEADINGS, *map(_cells, entries)])
    console.print(heading, style="bold", soft_wrap=True)
    for row, entry in zip(rows, entries, strict=True):
        console.print(row, soft_wrap=True)
        if console.is_terminal:
            console.print(f"  {entry['summary']}", style="dim", soft_wrap=True)


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The rows as lines of ``TABLE_WIDTH`` columns at most."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    gap = "  " if sum(widths) + 2 * (len(widths) - 1) <= TABLE_WIDTH else " "
    return [gap.join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _cells(entry: Entry) -> tuple[str, ...]:
    """Names without arguments, and a mapping without what it balances."""
    communication = _ARGUMENTS.sub("", entry["communication"])
    balance = (entry["balance"] or "-").removeprefix("balanced by ")
    push, pull = entry["push"], entry["pull"]
    formats = push if push == pull else f"{push} / {pull}"
    return entry["name"], communication, entry["aggregation"], entry["partition"], balance, formats
