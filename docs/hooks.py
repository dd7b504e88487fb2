"""Hooks of mkdocs: the decisions stand in the navigation by themselves, in the order of their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Add ``adr/*.md`` to Internals."""
    decisions = sorted(path.name for path in Path(config.docs_dir, "adr").glob("*.md"))
    internals = next(section["Internals"] for section in config.nav if "Internals" in section)
    internals.append({"Decisions": [f"adr/{name}" for name in decisions]})
    return config
