"""The outline of a text that parses: blocks, clauses and tokens with their comments, for the formatter.

    Body    = kind x beside: Comment? x Item* x below: Comment* x broken   # what braces hold; or a whole file
    Item    = Clause+                        # a declaration, doc, entry, phase or statement; `else` starts a clause
    Clause  = above: Comment* x head: Token+ x Body? x beside: Comment?
    Comment = Token

The syntax tree forgets comments, parentheses and how numbers are spelled; the outline keeps them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from zenc.language.recovery import DECLARED, GROWN, STATEMENTS

Kind = Literal["file", "scheme", "strategy", "averaging", "schedule", "block", "trees", "tree", "topology"]
"""Kinds of bodies, by items: declarations, entries, rules, an alternation, phases, statements, trees, branches."""

_BEGIN: dict[Kind, tuple[str, ...]] = {"block": STATEMENTS, "trees": GROWN, "tree": ("branch",), "topology": DECLARED}
"""The words that items start with, where no other mark ends the item before."""

_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
      | (?P<string>"[^"]*")
      | (?P<number>[0-9](?:_?[0-9])*(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+) | [0-9]\w*)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<mark>\.\.|->|[=!<>]=|<<|>>|[^\s])""",
    re.VERBOSE,
)


class OutlineToken(NamedTuple):
    """A token or a comment as written; ``kind`` is a group of ``_TOKEN``: comment, string, number, word or mark."""

    kind: str
    text: str
    breaks: int
    """The number of line ends between the token before and this one."""


@dataclass(frozen=True, slots=True)
class Body:
    """``beside`` stands on the line of the opening brace, ``below`` under the last item; ``broken`` over lines."""

    kind: Kind
    items: tuple[Item, ...]
    beside: OutlineToken | None = None
    below: tuple[OutlineToken, ...] = ()
    broken: bool = True


@dataclass(frozen=True, slots=True)
class Clause:
    """A head and the braces after it. ``beside`` stands on the line where the clause ends."""

    above: tuple[OutlineToken, ...]
    head: tuple[OutlineToken, ...]
    body: Body | None
    beside: OutlineToken | None


Item = tuple[Clause, ...]


def outline(text: str) -> Body:
    """Return the outline of the file ``text``, which must parse."""
    return _OutlineReader(tuple(_tokens(text))).file()


def _tokens(text: str) -> Iterator[OutlineToken]:
    end = 0
    for match in _TOKEN.finditer(text):
        yield OutlineToken(match.lastgroup or "", match[0].rstrip(), text.count("\n", end, match.start()))
        end = match.end()


class _OutlineReader:
    def __init__(self, tokens: tuple[OutlineToken, ...]) -> None:
        self._tokens = tokens
        self._at = 0

    def file(self) -> Body:
        items, below = self._items("file")
        return Body("file", items, None, below)

    def _body(self, kind: Kind) -> Body:
        start = self._at
        self._next()
        beside = self._beside()
        items, below = self._items(kind)
        self._next()
        broken = any(token.breaks for token in self._tokens[start + 1 : self._at])
        return Body(kind, items, beside, below, broken)

    def _items(self, kind: Kind) -> tuple[tuple[Item, ...], tuple[OutlineToken, ...]]:
        """Read the items up to the closing brace, and the comments under them."""
        items: list[Item] = []
        while True:
            comments = self._comments()
            if self._peek() in ("", "}"):
                return tuple(items), comments
            clauses = [self._clause(kind, comments)]
            while kind in _BEGIN and clauses[-1].body and self._peek() == "else":
                clauses.append(self._clause(kind, self._comments()))
            items.append(tuple(clauses))

    def _clause(self, kind: Kind, above: tuple[OutlineToken, ...]) -> Clause:
        head = self._head(kind)
        body = self._body(_held_by(kind, head)) if self._peek() == "{" else None
        return Clause(above, head, body, self._beside())

    def _head(self, kind: Kind) -> tuple[OutlineToken, ...]:
        head = [self._next()]
        while not self._ended(kind, head):
            head += [*self._comments(), self._next()]
        if self._peek() == "{":
            head += self._comments()
        if head[0].text == "require":  # in its message white space has no more meaning than in a doc string
            head = [t._replace(text=" ".join(t.text.split())) if t.kind == "string" else t for t in head]
        return tuple(head)

    def _ended(self, kind: Kind, head: list[OutlineToken]) -> bool:
        following = self._peek()
        if following in ("", "{", "}") or (head[-1].kind == "string" and head[0].text not in ("like", "tensors")):
            return True
        if kind == "scheme":
            return self._entry_ended(head)
        if kind == "strategy":
            return self._rule_ended(head)
        if kind == "averaging":
            return self._alternation_ended(head)
        return following in _BEGIN.get(kind, ()) and head[-1].text != "else"

    def _entry_ended(self, head: list[OutlineToken]) -> bool:
        if head[0].text == "choose":
            return head[-1].text == "]"
        if all(token.text != ":" for token in head):
            return False
        is_whole = head[-1].text not in (":", "by", "then", "as", "(", ",", "=")
        starts_tier = self._peek() == "tier" and is_whole and self._peek(2) in (":", "(")
        starts_choice = self._peek() == "choose" and is_whole and self._peek(1) in ("from", "(")
        return self._peek(1) == ":" or starts_tier or starts_choice

    def _rule_ended(self, head: list[OutlineToken]) -> bool:
        if all(token.text != ":" for token in head) or head[-1].text in (":", "on"):
            return False
        return self._peek(1) == ":" or (
            self._peek() == "tensors" and (self._peek(1) == "above" or self._peek(1)[:1] == '"')
        )

    def _alternation_ended(self, head: list[OutlineToken]) -> bool:
        if head[0].text == "alternate":
            opened = sum({"[": 1, "]": -1}.get(token.text, 0) for token in head)
            return head[-1].text == "]" and not opened
        is_value = any(token.text == ":" for token in head) and head[-1].text != ":"
        starts = self._peek() == "require" or (self._peek(), self._peek(1)) == ("alternate", "[")
        return is_value and (self._peek(1) == ":" or starts)

    def _peek(self, place: int = 0) -> str:
        """Return the ``place``-th token from here on, comments left out; empty beyond the end."""
        at = self._at
        while at < len(self._tokens):
            if self._tokens[at].kind != "comment":
                if not place:
                    return self._tokens[at].text
                place -= 1
            at += 1
        return ""

    def _next(self) -> OutlineToken:
        self._at += 1
        return self._tokens[self._at - 1]

    def _beside(self) -> OutlineToken | None:
        here = self._tokens[self._at : self._at + 1]
        return self._next() if here and here[0].kind == "comment" and not here[0].breaks else None

    def _comments(self) -> tuple[OutlineToken, ...]:
        start = self._at
        while self._at < len(self._tokens) and self._tokens[self._at].kind == "comment":
            self._at += 1
        return self._tokens[start : self._at]


_HELD: dict[str, Kind] = {
    "topology": "topology",
    "schedule": "schedule",
    "strategy": "strategy",
    "averaging": "averaging",
}


def _held_by(kind: Kind, head: tuple[OutlineToken, ...]) -> Kind:
    first = head[0]
    if kind == "file":
        return _HELD.get(first.text, "scheme")
    if kind == "topology":
        return kind
    if kind == "schedule" and any(token.text == "trees" for token in head):
        return "trees"
    return "schedule" if kind == "scheme" else "tree" if kind == "trees" else "block"
