"""Text -> tokens. Which terminal a token is depends on what the grammar takes there: lexer and parser go in step."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from functools import cached_property
from typing import NamedTuple

from zenc.language.parse_tables import ParseTables

END = "$END"
"""The terminal at the end of every text."""

NONE = ""
"""The terminal of a character that none starts with."""


_AT_ONCE = 100
"""Comments, and white space between them. A pattern takes 2 kB for each that it goes over, until it ends."""


class Token(NamedTuple):
    """A ``terminal`` of the grammar, and how it is written from offset ``start`` on."""

    terminal: str
    text: str
    start: int

    @property
    def end(self) -> int:
        """The offset behind the last character."""
        return self.start + len(self.text)


class Lexer:
    """Finds the terminals of the tables. Words are read to their end: ``total`` is never ``to`` and ``tal``."""

    def __init__(self, tables: ParseTables) -> None:
        self._tables = tables
        any_terminal = "|".join(f"(?P<{name}>{pattern})" for name, pattern in tables.terminals.items())
        self._first = re.compile(f"(?:{any_terminal})(?:{tables.ignored}){{0,{_AT_ONCE}}}")
        self._ignored = re.compile(f"(?:{tables.ignored}){{1,{_AT_ONCE}}}")

    @cached_property
    def _each(self) -> list[tuple[str, re.Pattern[str]]]:
        return [(name, re.compile(pattern)) for name, pattern in self._tables.terminals.items()]

    def tokens(self, text: str, start: int, stack: list[int]) -> Iterator[Token]:
        """The tokens from ``start`` on, and ``END``; nothing after ``NONE``.

        When one is asked for, the top of ``stack`` must be the state of the parser that will take it. A token is the
        first terminal that can stand there and is; else the first that is, which can't stand there.
        """
        actions, words, word = self._tables.actions, self._tables.words, self._tables.word
        at = self._after_ignored(text, start)
        while at < len(text):
            match = self._first.match(text, at)
            if match is None or match.lastgroup is None:
                after = self._after_ignored(text, at)
                if after == at:
                    yield Token(NONE, text[at], at)
                    return
                at = after
                continue
            terminal, found, end = match.lastgroup, match[match.lastgroup], match.end()
            if terminal == word:
                terminal = words.get(found, word)
            takes = actions[stack[-1]]
            if terminal not in takes:
                terminal, found = self._among(takes, text, at) or (terminal, found)
                end = self._after_ignored(text, at + len(found))
            yield Token(terminal, found, at)
            at = end
        yield Token(END, "", len(text))

    def _among(self, takes: Container[str], text: str, at: int) -> tuple[str, str] | None:
        """The first terminal of ``takes``, or any word, that stands at ``at``."""
        word = self._tables.word
        for name, pattern in self._each:
            if (name == word or name in takes) and (match := pattern.match(text, at)):
                special = self._tables.words.get(match[0], word) if name == word else name
                return (special if special in takes else name), match[0]
        return None

    def _after_ignored(self, text: str, at: int) -> int:
        while match := self._ignored.match(text, at):
            at = match.end()
        return at
