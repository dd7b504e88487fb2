"""``zenc list``: the schemes that come with zenc."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zenc.cli.common import JsonOption, print_json, reporting

if TYPE_CHECKING:
    from rich.table import Table

    from zenc.scheme.library import Entry

EXAMPLES = """\b
Examples:
  zenc list
  zenc list --json
"""


def list_(json: JsonOption = False) -> None:
    """List the schemes that come with zenc, by their four dimensions."""
    with reporting(json):
        from zenc.scheme.library import shipped

        entries = shipped()
    if json:
        print_json(entries)
    else:
        _show(entries)


PIPE_WIDTH = 240
TABLE_WIDTH = 130
"""Columns of a terminal that a table needs; narrower ones get a paragraph for each scheme."""


def _show(entries: list[Entry]) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH  # every scheme on one line, for other programs
    if console.width >= TABLE_WIDTH:
        console.print(_table(entries))
        return
    for entry in entries:
        console.print(entry["name"], style="bold")
        console.print(f"  {', '.join(word for word in _dimensions(entry) if word)}")
        console.print(f"  {entry['summary']}")


def _table(entries: list[Entry]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("name", "communication", "aggregation", "partition", "balance"):
        table.add_column(column, no_wrap=True)
    table.add_column("summary")
    for entry in entries:
        table.add_row(entry["name"], *(word or "-" for word in _dimensions(entry)), entry["summary"])
    return table


def _dimensions(entry: Entry) -> tuple[str | None, ...]:
    return entry["communication"], entry["aggregation"], entry["partition"], entry["balance"]
