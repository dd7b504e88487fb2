"""Hooks of mkdocs: decisions stand in the navigation by themselves; two pages are made of the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.main import get_command

from zenc.cli import app
from zenc.cli.assist.verbs import sections
from zenc.manual import completed, diagnostics

MADE = {
    "reference/cli.md": lambda: sections(get_command(app)),
    "reference/diagnostics.md": diagnostics,
}
"""Page -> what makes the part of it that is made."""


def on_config(config: Any) -> Any:
    """Add ``adr/*.md`` to Internals."""
    decisions = sorted(path.name for path in Path(config.docs_dir, "adr").glob("*.md"))
    internals = next(section["Internals"] for section in config.nav if "Internals" in section)
    internals.append({"Decisions": [f"adr/{name}" for name in decisions]})
    return config


def on_page_read_source(page: Any, config: Any) -> str | None:
    """The text of a page that is made; None for others, which are read as they are."""
    make = MADE.get(page.file.src_uri)
    return make and completed(Path(page.file.abs_src_path).read_text("utf-8"), make())
