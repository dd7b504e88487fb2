"""Recovery from syntax errors: where blocks open and close in a text that does not parse, and where to resume.

It knows strings, comments, words and braces, and nothing of the grammar; so it works on any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

Body = Literal["scheme", "strategy", "averaging", "schedule", "block", "trees", "tree", "topology"]
"""Kinds of open braces, by items: entries, rules, an alternation, phases, statements, trees, branches; a topology."""

DECLARATIONS = ("scheme", "schedule", "compress", "strategy", "averaging", "topology", "import")
STATEMENTS = ("step", "for", "if", "let", "require", "send")
GROWN = ("tree", "let", "require")
"""Statements of ``trees``."""
DECLARED = ("like", "levels", "switch", "link", "unlink", "memory", "for", "if", "let", "require")
"""Declarations of a topology. Inside of topologies these words can't name anything either."""
RESERVED = {
    "all", "and", "else", "for", "if", "import", "in", "let", "mod", "not", "of", "or", "part", "pull", "push",
    "require", "schedule", "scheme", "send", "step", "to", "topology", "where",
}  # fmt: skip
"""Words that can't name anything."""

_PIECE = re.compile(r'"[^"]*"|#[^\n]*|[A-Za-z_0-9]+|[{}]')


class Lexeme(NamedTuple):
    """A word or a brace; ``offset`` counts characters from the start of the text."""

    text: str
    offset: int


class Resumption(NamedTuple):
    """A point where parsing goes on after an error; ``offset`` counts characters from the start of the text."""

    offset: int
    top: bool
    """True where a declaration starts there; otherwise reading goes on in the block that was open."""


def pieces(text: str, start: int = 0) -> Iterator[Lexeme]:
    """Yield the words and braces from ``start`` on."""
    for match in _PIECE.finditer(text, start):
        if match[0][0] not in '"#':
            yield Lexeme(match[0], match.start())


def starts_declaration(text: str, piece: Lexeme) -> bool:
    """Return whether a declaration must start here: its word begins a line at the margin, and is no key."""
    is_first = piece.offset == 0 or text[piece.offset - 1] == "\n"
    end = piece.offset + len(piece.text)
    is_key = text[end : end + 40].lstrip().startswith(":")
    return piece.text in DECLARATIONS and is_first and not is_key


def resume(text: str, start: int, body: Body | None) -> Resumption | None:
    """Return the place where parsing goes on after an error at ``start``.

    That is the next entry, phase or statement of the open ``body``, or its end; but the next declaration where
    ``body`` is None or is never closed. None where there is no such place.
    """
    depth, before = 0, ""
    for piece in pieces(text, start):
        if piece.offset == start and text[_line_start(text, start) : start].strip():
            before = piece.text  # the culprit itself starts something only where it starts a line
            depth += {"{": 1, "}": -1}.get(piece.text, 0)
            if depth < 0 and body:
                return Resumption(piece.offset, top=False)
            continue
        if starts_declaration(text, piece) and piece.offset > start:
            return Resumption(piece.offset, top=True)
        depth += {"{": 1, "}": -1}.get(piece.text, 0)
        if body and (depth < 0 or (depth == 0 and before != "else" and _begins(text, piece, body))):
            return Resumption(piece.offset, top=False)
        before = piece.text
    return None


def _begins(text: str, piece: Lexeme, body: Body) -> bool:
    end = piece.offset + len(piece.text)
    rest = text[end : end + 40].lstrip()
    if body == "scheme":
        return piece.text in ("tier", "choose") or (piece.text[0].isalpha() and rest.startswith(":"))
    if body == "strategy":
        return piece.text in ("tensors", "others") or (piece.text[0].isalpha() and rest.startswith(":"))
    if body == "averaging":
        return piece.text in ("alternate", "require") or (piece.text[0].isalpha() and rest.startswith(":"))
    if body == "schedule":
        return (piece.text in ("push", "pull") and rest.startswith("{")) or (piece.text == "trees" and rest[:1] == "(")
    if body in ("trees", "tree"):
        return piece.text in (GROWN if body == "trees" else ("branch",))
    return piece.text in (DECLARED if body == "topology" else STATEMENTS)


def unclosed(text: str, end: int) -> int | None:
    """Return the offset of the brace most likely never closed in ``text[:end]``; None where all are closed.

    Where lines are indented, it is the first brace whose closing one stands further left than the line that opened
    it; otherwise the innermost one that is still open at ``end``.
    """
    open_braces: list[int] = []
    suspect: int | None = None
    for piece in pieces(text[:end]):
        if piece.text == "{":
            open_braces.append(piece.offset)
        elif piece.text == "}" and open_braces:
            opened = open_braces.pop()
            first_on_its_line = not text[_line_start(text, piece.offset) : piece.offset].strip()
            if suspect is None and first_on_its_line and _indent(text, piece.offset) < _indent(text, opened):
                suspect = opened
    if not open_braces:
        return None
    return suspect if suspect is not None and suspect > open_braces[0] else open_braces[-1]


def _line_start(text: str, offset: int) -> int:
    return text.rfind("\n", 0, offset) + 1


def _indent(text: str, offset: int) -> int:
    start = _line_start(text, offset)
    return len(text[start : start + 400]) - len(text[start : start + 400].lstrip(" \t"))
