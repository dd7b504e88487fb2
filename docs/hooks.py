"""Hooks of mkdocs: decisions stand in the navigation by themselves; two pages are made of the program.

Reports of benchmarks are pages as well, ``research/NAME.md``, with links as the site has them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from typer.main import get_command

from zenc.assist.manual import completed, diagnostics
from zenc.cli import app
from zenc.cli.assist.help import sections

MADE = {"reference/cli.md": lambda: sections(get_command(app)), "reference/diagnostics.md": diagnostics}
"""Page -> what makes the part of it that is made."""
REPORTS = Path(__file__).parents[1] / "benchmarks" / "reports"


def on_config(config: Any) -> Any:
    """Add ``adr/*.md`` to Internals."""
    decisions = sorted(path.name for path in Path(config.docs_dir, "adr").glob("*.md"))
    internals = next(section["Internals"] for section in config.nav if "Internals" in section)
    internals.append({"Decisions": [f"adr/{name}" for name in decisions]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the reports."""
    from mkdocs.structure.files import File

    for path in sorted(REPORTS.glob("*.md")):
        files.append(File.generated(config, f"research/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The text of a page with links to where reports, and what they link to, are on the site."""
    if page.file.src_uri.startswith("research/"):
        return markdown.replace("](../../docs/", "](../")
    return re.sub(r"(\]\((?:\.\./)*)\.\./benchmarks/reports/", r"\1research/", markdown)


def on_page_read_source(page: Any, config: Any) -> str | None:
    """The text of a page that is made; None for others, which are read as they are."""
    make = MADE.get(page.file.src_uri)
    return make and completed(Path(page.file.abs_src_path).read_text("utf-8"), make())
