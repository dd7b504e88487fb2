"""The manual that is installed with zenc: the pages of docs/start, guides and reference, by page and by section.

    Topic   = name x title x text x page               # a page, or one section of the page of diagnostics
    Section = heading x meaning x explanation x texts  # made of zenc.common.diagnostics and diagnostics/

An explanation stands in ``diagnostics/STAGE.md`` under its id. ``<!-- texts -->`` in it is the place of
``ID.bad.zen`` and ``ID.good.zen``, and ``<!-- lines -->`` the place of the lines in which they differ. A page in
docs/reference that is made by the site's build has a place for the made text; in the repository it says where that is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from zenc.common.diagnostics import DIAGNOSTICS
from zenc.common.resources import directory
from zenc.language.files import AVERAGINGS, STRATEGIES, locate, shipped_in, shipped_names

FOLDERS = ("start", "guides", "reference")
PAGE_OF_DIAGNOSTICS = "diagnostics"
PAGE_OF_VERBS = "cli"
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_COMMENT = re.compile(r"^<!--.*?-->\n?", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^### `(.*)`\n\n", re.MULTILINE)
_EXAMPLE = re.compile(r"^<!-- (texts|lines) -->$", re.MULTILINE)
_NAME = re.compile(r"'(\w+)'")
_EXPECTED = re.compile(r"# expect: \d+:\d+ (.*)")
_DOC = re.compile(r'^\s+"(.+)"$', re.MULTILINE)
_MADE = re.compile(r"^<!-- made -->\n.*?^<!-- /made -->\n", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the manual; ``text`` is Markdown, ``page`` its file."""

    name: str
    title: str
    text: str
    page: Path


def pages() -> dict[str, Topic]:
    """Return all pages, by the names of their files. Raises InternalError ``broken-installation``.

    The page of diagnostics has none of its sections, and the page of the command line none of its verbs.
    """
    root = directory("docs")
    files = [path for folder in FOLDERS for path in sorted((root / folder).glob("*.md"))]
    return {path.stem: _page(path) for path in files}


def diagnostic(id: str) -> Topic:
    """Return the section about the diagnostic ``id``, which is one of DIAGNOSTICS.

    Raises InternalError ``broken-installation``.
    """
    for path in _explanations():
        _, texts = _parts(path)
        if id in texts:
            text = _COMMENT.sub("", _section(id, texts[id])).strip()
            return Topic(id, DIAGNOSTICS[id][1], text, path)
    raise KeyError(id)


def diagnostics() -> str:
    """Return the sections about all diagnostics, as Markdown. Raises InternalError ``broken-installation``."""
    found = []
    for path in _explanations():
        head, texts = _parts(path)
        found += [head, *(f"### `{id}`\n\n{_section(id, text)}" for id, text in texts.items())]
    return "\n\n".join(found) + "\n"


def completed(page: str, made: str) -> str:
    """Return the text of a ``page``, with the ``made`` text at its place."""
    return _MADE.sub(lambda _: made, page)


def find(name: str, verbs: str = "") -> Topic | None:
    """Return the topic of that name: an id first, then a page, then a shipped scheme, strategy or averaging, or None.

    ``verbs`` are the sections of the page of the command line.
    """
    if name in DIAGNOSTICS:
        return diagnostic(name)
    page = pages().get(name) or _shipped(name)
    if page is None or name not in (PAGE_OF_DIAGNOSTICS, PAGE_OF_VERBS):
        return page
    made = diagnostics() if name == PAGE_OF_DIAGNOSTICS else verbs
    return replace(page, text=_COMMENT.sub("", completed(page.page.read_text("utf-8"), made)))


def _shipped(name: str) -> Topic | None:
    """Return the text of a shipped file of that name, by its own first words."""
    if name not in (*shipped_names(), *shipped_in(STRATEGIES), *shipped_in(AVERAGINGS)):
        return None
    path = locate(name)
    text = path.read_text("utf-8")
    doc = _DOC.search(text)
    more = f"`zenc explain {name}` says what it sends."
    return Topic(name, doc[1] if doc else name, f"```zen\n{text.strip()}\n```\n\n{more}", path)


def _explanations() -> list[Path]:
    """Return the files of explanations, in the order of the stages."""
    stages = dict.fromkeys(stage for stage, _ in DIAGNOSTICS.values())
    root = directory("diagnostics")
    return [path for stage in stages if (path := root / f"{stage}.md").exists()]


def _parts(path: Path) -> tuple[str, dict[str, str]]:
    """Return the head of a file of explanations, and each explanation by its id."""
    head, *rest = _HEADING.split(path.read_text("utf-8"))
    return head.strip(), {id: text.strip() for id, text in zip(rest[::2], rest[1::2], strict=True)}


def _section(id: str, explanation: str) -> str:
    meaning = _NAME.sub(r"`\1`", DIAGNOSTICS[id][1])
    apart = "\n\n" if explanation.startswith(("<!--", "```")) else "\n"
    text = f"{meaning[0].upper()}{meaning[1:]}.{apart}{explanation}".strip()
    return _EXAMPLE.sub(lambda found: _example(id, found[1] == "texts"), text)


def _example(id: str, whole: bool) -> str:
    """Return the bad text and the good one: whole, or the lines that the other one does not have."""
    root = directory("diagnostics")
    first, *bad = (root / f"{id}.bad.zen").read_text("utf-8").replace(".bad.zen", ".zen").splitlines()
    good = (root / f"{id}.good.zen").read_text("utf-8").splitlines()
    expected = _EXPECTED.fullmatch(first)
    pairs = ((bad, good), (good, bad))
    one, other = ([line for line in text if line and (whole or line not in rest)] for text, rest in pairs)
    title = f"# bad: {expected[1]}" if expected else "# bad"
    return "\n".join(["```zen", title, *one, "", "# good", *other, "```"])


def _page(path: Path) -> Topic:
    text = _COMMENT.sub("", path.read_text("utf-8"))
    title = _TITLE.search(text)
    return Topic(path.stem, title[1] if title else path.stem, text, path)
