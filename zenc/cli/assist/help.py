"""``zenc help``: the manual in the terminal, by the ids of diagnostics and the names of pages."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zenc.cli.common import JsonOption, answer, print_json, reporting

if TYPE_CHECKING:
    from zenc.assist.manual import Topic


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


EXAMPLES = """\b
Examples:
  zenc help                 what there is
  zenc help unknown-key     the diagnostic that stands as error[unknown-key] in a message
  zenc help language        a page of the manual
  zenc help balanced        a shipped scheme: its text, and what it is for
  zenc help simulate        the same as zenc simulate --help
"""

TopicArgument = Annotated[
    str | None,
    typer.Argument(metavar="TOPIC", help="A diagnostic's id, a page, a scheme or a verb; without one, all are listed."),
]


def help_(context: typer.Context, topic: TopicArgument = None, json: JsonOption = False) -> None:
    """Show what a diagnostic means and what to do about it, a page of the manual, or a shipped scheme.

    Ids of diagnostics stand in brackets in messages: error[unknown-key].
    """
    with reporting(json):
        if topic is None:
            _list(json)
            return
        verb = _help_of_verb(context, topic)
        found = None if verb else _found(context, topic.strip("[]"))
    if verb or found is None:
        answer(json, {"name": topic, "title": f"zenc {topic}", "text": verb}, str(verb))
    elif json:
        print_json({"ok": True, "name": found.name, "title": found.title, "page": str(found.page), "text": found.text})
    else:
        _show(found)


def _help_of_verb(context: typer.Context, name: str) -> str | None:
    program = context.find_root()
    verbs = getattr(program.command, "commands", {})
    if name not in verbs:
        return None
    with type(program)(verbs[name], info_name=name, parent=program) as inside:
        return str(verbs[name].get_help(inside))


def _found(context: typer.Context, name: str) -> Topic:
    from zenc.assist.manual import PAGE_OF_VERBS, find, pages
    from zenc.common.diagnostics import DIAGNOSTICS
    from zenc.language.files import shipped_names

    made = sections(context.find_root().command) if name == PAGE_OF_VERBS else ""
    found = find(name, made)
    if found is None:
        near = get_close_matches(name, [*DIAGNOSTICS, *pages(), *shipped_names()], n=1)
        hint = f"did you mean '{near[0]}'?" if near else "`zenc help` lists all"
        raise typer.BadParameter(f"there is no diagnostic, page or shipped scheme {name!r}; {hint}")
    return found


def _list(json: bool) -> None:
    from zenc.assist.manual import pages
    from zenc.common.diagnostics import DIAGNOSTICS

    titles = {name: page.title for name, page in pages().items()}
    if json:
        ids = [{"id": id, "stage": stage, "meaning": meaning} for id, (stage, meaning) in DIAGNOSTICS.items()]
        print_json({"ok": True, "pages": titles, "diagnostics": ids})
        return
    print("pages")
    for name, title in titles.items():
        print(f"  {name:28} {title}")
    print("diagnostics")
    for id, (_, meaning) in DIAGNOSTICS.items():
        print(f"  {id:28} {meaning}")


def _show(topic: Topic) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    from zenc.common.diagnostics import DIAGNOSTICS

    heading = f"# {topic.name}: {topic.title}\n\n" if topic.name in DIAGNOSTICS else ""
    console = Console()
    if console.is_terminal:
        console.print(Markdown(heading + topic.text))
    else:
        print(heading + topic.text)
