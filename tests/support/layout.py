"""Properties of any layout, and texts with arbitrary gaps between their tokens."""

from __future__ import annotations

import re

from hypothesis import strategies as st

from tests.support.survival import Faults, faults_of
from zenc.errors import SchemeSyntaxError, Source
from zenc.language.formatter import format_text
from zenc.language.parse import parse

TOKEN = re.compile(r'#[^\n]*|"[^"]*"|[0-9]+\.[0-9]+|\w+|\.\.|->|[=!<>]=|<<|>>|\S')
_COMMENTED = re.compile(r'(\n?)[ \t\r]*(#[^\n]*)|"[^"]*"')
BREAKS = ["\n", "\n\n", "\r\n", " # beside\n", "\n# above\n", "\n\n\n\t# apart \r\n\n", " #\n", ' # "}\n# {"\n']
GAPS = st.lists(st.sampled_from([" ", " ", " ", "\t", "    ", *BREAKS]), min_size=1, max_size=40)
"""Texts between one token and the next, repeated."""


def meaning(text: str) -> tuple[object, ...]:
    file = parse(Source("text", text))
    return file.imports, file.schedules, file.schemes, file.topologies, file.compressors, file.strategies


def words(text: str) -> list[str]:
    """Return everything but white space, in order: comments too, and doc strings as they are understood."""
    return [f'"{" ".join(word[1:-1].split())}"' if word[0] == '"' else word.rstrip() for word in TOKEN.findall(text)]


def comments(text: str) -> list[tuple[bool, str]]:
    """Return whether each comment has a line of its own, and the comment."""
    return [(bool(line), comment.rstrip()) for line, comment in _COMMENTED.findall("\n" + text) if comment]


def _without_inside(found: re.Match[str]) -> str:
    """Return a string or a comment without its inner white space, which is always kept."""
    return '""' if found[0][0] == '"' else re.sub(r"\s(?=.*\S)", "_", found[0])


def layout_faults(text: str) -> Faults:
    """Return faults of the layout of ``text``, by properties of any layout."""
    once = format_text(text, "text")
    plain = re.sub(r'#[^\n]*|"[^"]*"', _without_inside, once)
    spaced = "\n\n\n" in plain or "{\n\n" in plain or "\r" in plain or "\t" in plain
    return faults_of(
        it_is_laid_out_in_another_way_again=format_text(once, "text") == once,
        it_means_something_else=meaning(once) == meaning(text),
        it_has_other_words=words(once) == words(text),
        it_has_other_comments=comments(once) == comments(text),
        it_is_spaced_in_another_way=not spaced,
        a_line_ends_in_blanks=not re.search(r"[ \t]\n|\n\n\Z|\A\s", plain) and once.endswith("\n"),
    )


def laid_out(text: str) -> str:
    """Return the layout of ``text``; raise AssertionError where it has faults."""
    assert layout_faults(text) == []
    return format_text(text, "text")


def layout_or_refusal_faults(text: str) -> Faults:
    """Return faults of the layout of a text that parses; another one has to be refused in the same words."""
    try:
        meaning(text)
    except SchemeSyntaxError as error:
        try:
            format_text(text, "text")
        except SchemeSyntaxError as refused:
            return faults_of(it_is_refused_by_other_words=str(refused) == str(error))
        return ["it is laid out and does not parse"]
    return layout_faults(text)


def apart(text: str, gaps: list[str]) -> str:
    """Return ``text`` with ``gaps`` between its tokens."""
    return "".join(word + gaps[place % len(gaps)] for place, word in enumerate(TOKEN.findall(text)))
