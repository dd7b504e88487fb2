"""The words of the language as the manual explains them: the tables of its pages about the language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from zenc.language.parse_tables import tables
from zenc.manual import pages

PAGES = ("language", "topologies")
_ROW = re.compile(r"^\| (.+?) \|$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")
_VALUE = re.compile(r"`(?:balanced by |A )?([a-z_]\w*)[^`]*`(?: with or without `[^`]*`)?: ([^;|]+)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_WORD = re.compile(r"[A-Za-z_]\w*")


@cache
def glossary() -> dict[str, str]:
    """Word -> what the manual says of it, in Markdown.

    That is the first row that starts with it, or else that has it; a value's is the row of its key, or a part of that.
    """
    rows = [row for name in PAGES for row in _rows(pages()[name].text)]
    found: dict[str, str] = {}
    for kind in (_first, _keywords, _values, _named):
        for what, meaning in rows:
            for word, text in kind(what, meaning):
                found.setdefault(word, _LINK.sub(r"\1", text).strip())
    return found


def _rows(text: str) -> Iterator[tuple[str, str]]:
    """The subject of a row, which has code in it, and its meaning."""
    for row in _ROW.finditer(text):
        what, *rest = re.split(r"(?<!\\) \| ", row[1])
        if rest and rest[0].strip("- ") and _CODE.search(what):
            yield what, rest[0]


def _first(what: str, meaning: str) -> Iterator[tuple[str, str]]:
    for code in _CODE.findall(what):
        if word := _WORD.search(code):
            yield word[0], f"`{code}`: {meaning}"


def _keywords(what: str, meaning: str) -> Iterator[tuple[str, str]]:
    for code in _CODE.findall(what):
        yield from ((word, f"`{code}`: {meaning}") for word in _WORD.findall(code) if word in tables().words)


def _values(what: str, meaning: str) -> Iterator[tuple[str, str]]:
    yield from ((word, f"`{word}`: {text}") for word, text in _VALUE.findall(meaning))


def _named(what: str, meaning: str) -> Iterator[tuple[str, str]]:
    for code in _CODE.findall(meaning):
        yield from ((word, f"{what}: {meaning}") for word in _WORD.findall(code) if word.islower())
