"""The page of the command line, made of the program's own help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from zenc.cli import app

WIDTH = 110
HEAD = """# Command line

What `zenc VERB --help` prints, for all verbs. `zenc help VERB` prints the same, and `zenc help ID` what a diagnostic
means.

Every verb takes `--json`. The exit status is 0 if all is well, 1 if something was found wrong, and 2 if the command
line itself is wrong. Diagnostics go to standard error, results to standard output.
"""


def page() -> str:
    """The whole page, as Markdown."""
    return "\n".join([HEAD, *sections(get_command(app), "zenc", None)])


def sections(command: Any, name: str, parent: Any) -> Iterator[str]:
    """A section for ``command``, then one for each verb in it, in the order of the help."""
    made = command.context_class(command, info_name=name, parent=parent, terminal_width=WIDTH, max_content_width=WIDTH)
    with made as context:
        title = context.command_path
        text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
        yield f"## `{title}`\n\n```text\n{text}\n```\n"
        for verb, child in getattr(command, "commands", {}).items():
            yield from sections(child, verb, context)
