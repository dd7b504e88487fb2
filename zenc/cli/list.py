"""``zenc list``: the schemes that come with zenc."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zenc.cli.common import JsonOption, print_json, reporting

if TYPE_CHECKING:
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
        print_json({"ok": True, "schemes": entries})
    else:
        _show(entries)


def _show(entries: list[Entry]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("name", no_wrap=True)
    for column in ("communication", "aggregation", "partition", "balance", "summary"):
        table.add_column(column)
    for entry in entries:
        dimensions = (entry["communication"], entry["aggregation"], entry["partition"], entry["balance"] or "-")
        table.add_row(entry["name"], *dimensions, entry["summary"])
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 240  # into a pipe, every scheme on one line
    console.print(table)
