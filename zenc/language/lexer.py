"""Lexer and the tables of the grammar: text -> tokens, by what an LALR(1) parser shifts and reduces.

    ParseTables = terminals: name -> pattern         # in the order in which they are tried
                  ignored: pattern                   # what may stand between tokens
                  word, words: text -> name          # the terminal of words; its texts that are terminals themselves
                  rules: Rule*
                  actions: (terminal -> n)*          # a state each: shift and go to state n, or reduce by rule -1 - n
                  gotos: (name of a rule -> state)*  # a state each: where to go when such a rule has been reduced
                  starts: name -> state
    Rule        = name x size x (Node | List | Same)
                  Node = name x Item*                # what the builder of this name makes of the items
                  List = Item*                       # part of the rule around it
                  Same = Item                        # its item and nothing else
    Item        = offset | [offset] | None      # a symbol, counted from the end; a list of several; an option not taken

lark works them out of ``grammar/zen.lark``. Those of the grammar that comes with zenc lie beside it, in
``grammar/zen.json``, which spares lark's tenth of a second in every process; of a grammar that was changed they are
worked out when it is read. Which terminal a token is depends on what the grammar takes there: lexer and parser go in
step.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias

from zenc.common.resources import directory, fingerprint

Item: TypeAlias = int | list[int] | None


@dataclass(frozen=True, slots=True)
class Rule:
    """An alternative of ``name`` with ``size`` symbols. It makes a ``node``, or a list, or is the same as its item."""

    name: str
    size: int
    node: str | None
    is_list: bool
    is_chain: bool
    """True of another name for its only symbol."""
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class ParseTables:
    """The parse tables of a grammar, as the module describes them; read only."""

    terminals: Mapping[str, str]
    ignored: str
    word: str
    words: Mapping[str, str]
    rules: list[Rule]
    actions: list[dict[str, int]]
    gotos: list[dict[str, int]]
    starts: Mapping[str, int]


@lru_cache(maxsize=1)
def tables() -> ParseTables:
    """Return the tables of the language."""
    folder = directory("grammar")
    grammar = (folder / "zen.lark").read_text(encoding="utf-8")
    kept = folder / "zen.json"
    data: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    if data.pop("grammar", "") != fingerprint(grammar):
        from zenc.language.generate_tables import worked_out

        data = worked_out(grammar)
        del data["grammar"]
    return ParseTables(**{**data, "rules": [_rule(rule) for rule in data["rules"]]})


def _rule(data: dict[str, Any]) -> Rule:
    size = len(data["symbols"])
    (kind,) = data.keys() & {"node", "list", "same"}
    items = [data["same"]] if kind == "same" else data["items"] if kind == "node" else data["list"]
    offsets = tuple(
        [place - size for place in item] if isinstance(item, list) else None if item is None else item - size
        for item in items
    )
    return Rule(data["name"], size, data.get("node"), kind == "list", kind == "same" and size == 1, offsets)


END = "$END"
"""The terminal at the end of every text."""

NONE = ""
"""The terminal of a character that starts no token."""


_AT_ONCE = 100
"""Upper bound on the comments, with white space between them, that one match skips; each takes 2 kB until it ends."""


class Token(NamedTuple):
    """A token: a ``terminal`` of the grammar, and its text from offset ``start`` on."""

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
        """Yield the tokens from ``start`` on, and ``END``; nothing after ``NONE``.

        When a token is asked for, the top of ``stack`` must be the state of the parser that will take it. A token is
        the first terminal that can stand there and is; else the first that is, which can't stand there.
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
        """Return the first terminal of ``takes``, or any word, that stands at ``at``, with its text."""
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
