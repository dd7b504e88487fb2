"""What is true of any layout, and texts with anything between their tokens."""

from __future__ import annotations

import re

import pytest
from hypothesis import strategies as st

from zenc.errors import SchemeSyntaxError, Source
from zenc.language.formatter import format_text
from zenc.language.parse import parse

TOKEN = re.compile(r'#[^\n]*|"[^"]*"|[0-9]+\.[0-9]+|\w+|\.\.|->|[=!<>]=|<<|>>|\S')
_COMMENTED = re.compile(r'(\n?)[ \t\r]*(#[^\n]*)|"[^"]*"')
BREAKS = ["\n", "\n\n", "\r\n", " # beside\n", "\n# above\n", "\n\n\n\t# apart \r\n\n", " #\n", ' # "}\n# {"\n']
GAPS = st.lists(st.sampled_from([" ", " ", " ", "\t", "    ", *BREAKS]), min_size=1, max_size=40)
"""What stands between one token and the next, over and over."""


def meaning(text: str) -> tuple[object, ...]:
    file = parse(Source("text", text))
    return file.imports, file.schedules, file.schemes, file.topologies, file.compressors, file.strategies


def words(text: str) -> list[str]:
    """Everything but white space, in order: comments too, and doc strings as they are understood."""
    return [f'"{" ".join(word[1:-1].split())}"' if word[0] == '"' else word.rstrip() for word in TOKEN.findall(text)]


def comments(text: str) -> list[tuple[bool, str]]:
    """Whether each comment has a line of its own, and the comment."""
    return [(bool(line), comment.rstrip()) for line, comment in _COMMENTED.findall("\n" + text) if comment]


def _without_inside(found: re.Match[str]) -> str:
    """A string or a comment, without the white space in it: that is kept, whatever it is."""
    return '""' if found[0][0] == '"' else re.sub(r"\s(?=.*\S)", "_", found[0])


def assert_layout(text: str) -> str:
    """All that is true of any layout; gives that of ``text``."""
    once = format_text(text, "text")
    assert format_text(once, "text") == once
    assert meaning(once) == meaning(text)
    assert words(once) == words(text)
    assert comments(once) == comments(text)
    plain = re.sub(r'#[^\n]*|"[^"]*"', _without_inside, once)
    assert "\n\n\n" not in plain and "{\n\n" not in plain and "\r" not in plain and "\t" not in plain
    assert not re.search(r"[ \t]\n|\n\n\Z|\A\s", plain) and once.endswith("\n")
    return once


def assert_laid_out_or_refused(text: str) -> None:
    """What parses has a layout; what does not is refused by the same words."""
    try:
        meaning(text)
    except SchemeSyntaxError as error:
        with pytest.raises(SchemeSyntaxError) as refused:
            format_text(text, "text")
        assert str(refused.value) == str(error)
    else:
        assert_layout(text)


def apart(text: str, gaps: list[str]) -> str:
    """``text`` with ``gaps`` between its tokens, whatever was there."""
    return "".join(word + gaps[place % len(gaps)] for place, word in enumerate(TOKEN.findall(text)))
