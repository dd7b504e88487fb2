"""The page of the command line, made of the program's own help: a section for each verb."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_WIDTH = 110


def sections(command: Any, name: str = "zenc", parent: Any = None) -> str:
    """Return the section of ``command``, then one for each verb in it, in the order of the help; as Markdown."""
    return "\n".join(_sections(command, name, parent))


def _sections(command: Any, name: str, parent: Any) -> Iterator[str]:
    settings = {"terminal_width": _WIDTH, "max_content_width": _WIDTH, **command.context_settings}
    made = command.context_class(command, info_name=name, parent=parent, **settings)
    with made as context:
        text = "\n".join(line.rstrip(" \b") for line in command.get_help(context).splitlines())
        yield f"## `{context.command_path}`\n\n```text\n{text}\n```\n"
        for verb, child in getattr(command, "commands", {}).items():
            yield from _sections(child, verb, context)
