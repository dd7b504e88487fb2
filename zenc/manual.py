"""The manual that is installed with zenc: the pages of docs/start, guides and reference, by page and by section.

Topic = name x title x text x page                      # a page, or one section of the page of diagnostics
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from zenc.diagnostics import DIAGNOSTICS
from zenc.resources import directory

FOLDERS = ("start", "guides", "reference")
PAGE_OF_DIAGNOSTICS = "diagnostics"
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_COMMENT = re.compile(r"^<!--.*?-->\n?", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the manual; ``text`` is Markdown, ``page`` its file."""

    name: str
    title: str
    text: str
    page: Path


def pages() -> dict[str, Topic]:
    """Return all pages, by the names of their files. Raises InternalError ``broken-installation``."""
    root = directory("docs")
    files = [path for folder in FOLDERS for path in sorted((root / folder).glob("*.md"))]
    return {path.stem: _page(path) for path in files}


def diagnostic(id: str) -> Topic:
    """Return the section about the diagnostic ``id``, which is one of DIAGNOSTICS.

    Raises InternalError ``broken-installation``.
    """
    page = directory("docs") / "reference" / f"{PAGE_OF_DIAGNOSTICS}.md"
    _, _, rest = page.read_text("utf-8").partition(f"\n### `{id}`\n")
    text = _COMMENT.sub("", rest[: _end(rest)]).strip()
    return Topic(id, DIAGNOSTICS[id][1], text, page)


def find(name: str) -> Topic | None:
    """Return the topic of that name: an id first, then a page; None where there is neither."""
    return diagnostic(name) if name in DIAGNOSTICS else pages().get(name)


def _end(text: str) -> int:
    """Return the place of the first heading outside of blocks of code; the length of ``text`` without any."""
    bare = _FENCED.sub(lambda block: " " * len(block[0]), text)
    heading = re.search(r"^#{1,3} ", bare, re.MULTILINE)
    return heading.start() if heading else len(text)


def _page(path: Path) -> Topic:
    text = _COMMENT.sub("", path.read_text("utf-8"))
    title = _TITLE.search(text)
    return Topic(path.stem, title[1] if title else path.stem, text, path)
