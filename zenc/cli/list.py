"""``zenc list``: the schemes that come with zenc."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from zenc.cli.common import JsonOption, answer, print_json, reporting
from zenc.common.wording import aligned

if TYPE_CHECKING:
    from zenc.averaging.resolve import ShippedAveraging
    from zenc.scheme.library import ShippedScheme, TierEntry
    from zenc.strategy.library import ShippedStrategy

EXAMPLES = """\b
Examples:
  zenc list
  zenc list --json
  zenc list --strategies
  zenc list --averagings
"""

TABLE_WIDTH = 120
"""The columns that the table fits; a narrower terminal gets a paragraph for each scheme."""
_ARGUMENTS = re.compile(r"\(.*?\)(?= then | \+ |$)")
HEADINGS = ("name", "communication", "aggregation", "partition", "balance", "formats")


def list_(
    strategies: Annotated[
        bool, typer.Option("--strategies", help="List strategies instead, with their groups and rules.")
    ] = False,
    averagings: Annotated[
        bool, typer.Option("--averagings", help="List averagings instead, with their divisions.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List the schemes that come with zenc, by their four dimensions and what travels in push and pull.

    A terminal also gets what each of them is in a sentence. Below a scheme stand its tiers, candidates and losses.
    """
    with reporting(json):
        from zenc.scheme.library import shipped
        from zenc.strategy.library import shipped_strategy_entries

        if strategies:
            found = shipped_strategy_entries()
            return answer(json, {"strategies": found}, "\n\n".join(_strategy(entry) for entry in found))
        if averagings:
            from zenc.averaging.resolve import shipped_averagings

            known = shipped_averagings()
            lines = [f"{each['name']}\n  {each['summary']}\n  {_averaging(each)}" for each in known]
            return answer(json, {"averagings": known}, "\n\n".join(lines))
        entries = shipped()
    if json:
        print_json({"ok": True, "schemes": entries})
    else:
        _show(entries)


def _averaging(entry: ShippedAveraging) -> str:
    words = "".join(f", {key} {value}" for key, value in entry["words"].items())
    return f"{entry['alternate']}{words}, by {entry['sums']}"


def _show(entries: list[ShippedScheme]) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    if console.is_terminal and console.width < TABLE_WIDTH:
        for entry in entries:
            console.print(entry["name"], style="bold")
            for name, *cells in _rows(entry):
                words = ", ".join(cell for cell in cells if cell not in ("", "-"))
                told = (words,) if name == entry["name"] else (name, words)
                console.print(f"  {': '.join(filter(None, told))}")
            if entry["compression"]:
                console.print(f"  {entry['compression']}")
            console.print(f"  {entry['summary']}")
        return
    heading, *rows = _table([HEADINGS, *(row for entry in entries for row in _rows(entry))])
    console.print(heading, style="bold", soft_wrap=True)
    for entry in entries:
        for _ in _rows(entry):
            console.print(rows.pop(0), soft_wrap=True)
        if entry["compression"]:
            console.print(f"  {entry['compression']}", soft_wrap=True)
        if console.is_terminal:
            console.print(f"  {entry['summary']}", style="dim", soft_wrap=True)


def _strategy(entry: ShippedStrategy) -> str:
    rules = [
        (f"  {rule['tensors']}", " or ".join(rule["schemes"]), f"on {rule['device']}" if rule["device"] else "")
        for rule in entry["rules"]
    ]
    return "\n".join([entry["name"], f"  {entry['summary']}", f"  groups: {entry['groups']}", *_table(rules)])


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the rows as lines of ``TABLE_WIDTH`` columns at most."""
    wide = aligned(rows)
    return wide if max(map(len, wide), default=0) <= TABLE_WIDTH else aligned(rows, gap=" ")


def _rows(entry: ShippedScheme) -> list[tuple[str, ...]]:
    """Return the row of a scheme; under one with tiers, which share the mapping, or candidates, a row for each."""
    if entry["candidates"]:
        names = [(f"  {name}", "", "", "", "", "") for name in entry["candidates"]]
        return [(entry["name"], f"chooses from {len(names)}", "", "", "", ""), *names]
    balance = (entry["balance"] or "-").removeprefix("balanced by ")
    if not entry["tiers"]:
        return [_row(entry["name"], entry, balance)]
    sizes = [f"({tier['size']})" if tier["size"] else "" for tier in entry["tiers"]]
    named = [f"  {tier['name']}{size}" for tier, size in zip(entry["tiers"], sizes, strict=True)]
    tiers = [_row(name, tier, "") for name, tier in zip(named, entry["tiers"], strict=True)]
    return [(entry["name"], f"{len(tiers)} tiers", "", "", balance, ""), *tiers]


def _row(name: str, what: ShippedScheme | TierEntry, balance: str) -> tuple[str, ...]:
    """Return names without arguments, and a mapping without ``balanced by``."""
    communication = _ARGUMENTS.sub("", what["communication"])
    push, pull = what["push"], what["pull"]
    formats = push if push == pull else f"{push} / {pull}"
    return name, communication, what["aggregation"], what["partition"], balance, formats
