"""``zenc list``: the schemes that come with zenc."""

from __future__ import annotations

from zenc.cli.common import JsonOption, print_json, reporting

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


_COLUMNS = ("name", "communication", "aggregation", "partition", "balance")


def _show(entries: list[dict[str, str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in _COLUMNS:
        table.add_column(column, no_wrap=True)
    table.add_column("summary", ratio=1)
    for entry in entries:
        table.add_row(*(entry[column] for column in _COLUMNS), entry["summary"])
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 240  # into a pipe, every scheme on one line
    console.print(table)
