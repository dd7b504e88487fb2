"""A text -> its canonical layout. Tokens and comments stay as they are; only what lies between them changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from zenc.errors import Source
from zenc.language import schedule as s
from zenc.language.outline import Body, Clause, Item, OutlineToken, outline
from zenc.language.parse import parse
from zenc.language.recovery import RESERVED

WIDEST = 120
"""Columns of a line. Only what has no place to break, such as a comment, is longer."""

_INDENT = "    "
_UNALIGNED = ("push", "pull", "unit")
"""Keys that take one space before their value; the others of a scheme stand in a column."""


@dataclass(slots=True)
class _Line:
    text: str
    comment: str = ""

    @property
    def width(self) -> int:
        return len(self.text.rpartition("\n")[2])


_Lines = list[_Line]


def format_text(text: str, name: str) -> str:
    """Return the same program in canonical layout; formatting it again changes nothing.

    ``name`` is what diagnostics call the text.

    Raises:
        SchemeSyntaxError: ``text`` does not parse.
    """
    before = parse(Source(name, text))
    lines = _body(outline(text), 0)
    _align_comments(lines)
    formatted = "".join(f"{line.text}{line.comment}\n" for line in lines)
    after = parse(Source(name, formatted))
    assert replace(before, source=after.source) == after, "the layout changed the meaning"
    return formatted


# Blocks -----------------------------------------------------------------------------------------------------------


def _body(body: Body, indent: int) -> _Lines:
    lines: _Lines = []
    columns = _columns(body, indent)
    for place, item in enumerate(body.items):
        above, first = item[0].above, item[0].head[0]
        if body.kind == "file" and place and _stand_apart(body.items[place - 1], item):
            lines.append(_Line(""))
        lines += _comments(above, indent, lines)
        lines += _gap(first, lines)
        lines += _item(item, indent, columns.get(place, 0))
    return lines + _comments(body.below, indent, lines)


def _stand_apart(before: Item, item: Item) -> bool:
    if any(token.breaks > 1 for token in (*item[0].above, item[0].head[0])):
        return False
    return not before[0].head[0].text == item[0].head[0].text == "import"


def _gap(token: OutlineToken, before: _Lines) -> _Lines:
    return [_Line("")] if token.breaks > 1 and before and before[-1].text else []


def _comments(comments: Sequence[OutlineToken], indent: int, before: _Lines) -> _Lines:
    lines: _Lines = []
    for comment in comments:
        lines += _gap(comment, lines or before)
        lines.append(_Line(_INDENT * indent + comment.text))
    return lines


def _item(item: Item, indent: int, column: int) -> _Lines:
    """Lay out an item; ``column`` is the width of the keys that a plain entry is aligned with."""
    text = _one_line(item)
    if text is not None and _fits(text, indent):
        if column:
            key, _, value = text.partition(": ")
            text = f"{key}:".ljust(column + 2) + value
        return [_Line(_INDENT * indent + text, _text_of(item[-1].beside))]
    lines: _Lines = []
    for place, clause in enumerate(item):
        lines += _comments(clause.above, indent, lines) if place else []
        prefix = ""
        if lines and lines[-1] == _Line(_INDENT * indent + "}"):
            lines.pop()
            prefix = "} "
        lines += _clause(clause, indent, prefix)
    return lines


def _clause(clause: Clause, indent: int, prefix: str) -> _Lines:
    lines = _head(clause, indent, prefix)
    if clause.body is not None:
        inline = _inline(clause.body)
        if inline == "{ }" or (inline and len(lines) == 1 and _fits(f"{lines[0].text} {inline}", 0)):
            lines[-1].text += _after(lines[-1].text, inline)
        else:
            lines[-1].text += _after(lines[-1].text, "{")
            lines[-1].comment = _text_of(clause.body.beside)
            lines += [*_body(clause.body, indent + 1), _Line(_INDENT * indent + "}")]
    if clause.beside:
        lines[-1].comment = clause.beside.text
    return lines


def _after(text: str, more: str) -> str:
    return f" {more}" if text.strip() else more


def _head(clause: Clause, indent: int, prefix: str) -> _Lines:
    """Lay out the head on one line, or on the lines of the source where it is too long or holds comments."""
    tokens, margin = clause.head, _INDENT * indent
    if tokens[0].kind == "string":
        return _doc(tokens[0].text, margin)
    whole = prefix + _spaced(tokens)
    if not _has_comments(tokens) and _fits(whole + " {" * (clause.body is not None), indent):
        return [_Line(margin + whole)]
    lines = [_Line(margin + prefix)]
    for gap, token in zip(_gaps(tokens), tokens, strict=True):
        if token.kind == "comment" and not token.breaks:
            lines[-1].comment = token.text
        elif token.breaks and token is not tokens[0]:
            lines.append(_Line(margin + _INDENT + token.text))
        else:
            lines[-1].text += gap + token.text
    if tokens[-1].kind == "comment":  # nothing can follow it on its line
        lines.append(_Line(margin))
    return lines


def _doc(text: str, margin: str) -> _Lines:
    """Lay out the lines of a doc string under each other; white space in it has no meaning."""
    words = [" ".join(line.split()) for line in text[1:-1].split("\n")]
    first, *more = [line for line in words if line] or [""]
    lines = [f'{margin}"{first}', *(f"{margin} {line}" for line in more)]
    return [*map(_Line, lines[:-1]), _Line(lines[-1] + '"')]


def _one_line(item: Item) -> str | None:
    """Return the item on one line, however long; None where its comments or its blocks need more lines."""
    texts: list[str] = []
    for place, clause in enumerate(item):
        inline = _inline(clause.body) if clause.body else ""
        is_interrupted = place and (clause.above or clause.head[0].breaks or item[place - 1].beside)
        if inline is None or is_interrupted or _has_comments(clause.head) or clause.head[0].kind == "string":
            return None
        texts += [_spaced(clause.head), inline]
    return " ".join(filter(None, texts))


def _inline(body: Body) -> str | None:
    """Return a body with its braces on one line; None where it holds more than a short statement."""
    if not (body.items or body.beside or body.below):
        return "{ }"
    if body.kind not in ("block", "tree", "topology") or body.broken or len(body.items) > 1:
        return None
    text = _one_line(body.items[0])
    return text and f"{{ {text} }}"


# Columns ----------------------------------------------------------------------------------------------------------


def _columns(body: Body, indent: int) -> dict[int, int]:
    """Return the width of the key column for each aligned entry, by the entry's place."""
    widths: dict[int, int] = {}
    for run in _runs(body.items, indent) if body.kind == "scheme" else ():
        widths.update(
            dict.fromkeys(run, max(len(_spaced(body.items[place][0].head).partition(":")[0]) for place in run))
        )
    return widths


def _runs(items: Sequence[Item], indent: int) -> list[list[int]]:
    """Return the places of the entries that are aligned with each other, a nonempty list for each run."""
    runs: list[list[int]] = [[]]
    for place, item in enumerate(items):
        clause = item[0]
        is_tier = clause.head[0].text == "tier"
        is_entry = clause.body is None and clause.head[0].text != "choose"
        is_plain = is_entry and (text := _one_line(item)) is not None and _fits(text, indent)
        is_apart = not is_plain or any(token.breaks > 1 for token in (*clause.above, clause.head[0]))
        if is_apart or (runs[-1] and is_tier != (items[runs[-1][-1]][0].head[0].text == "tier")):
            runs.append([])
        if is_plain and clause.head[0].text not in _UNALIGNED:
            runs[-1].append(place)
    return [run for run in runs if run]


def _align_comments(lines: _Lines) -> None:
    for has_comment, group in groupby(lines, key=lambda line: bool(line.comment)):
        run = list(group)
        column = max(line.width for line in run) + 2
        if any(column + len(line.comment) > WIDEST for line in run):
            column = 0
        for line in run if has_comment else ():
            line.text += " " * max(2, column - line.width)


# Tokens -----------------------------------------------------------------------------------------------------------


def _fits(text: str, indent: int) -> bool:
    return len(_INDENT) * indent + len(text) <= WIDEST


def _text_of(comment: OutlineToken | None) -> str:
    return comment.text if comment else ""


def _has_comments(tokens: Sequence[OutlineToken]) -> bool:
    return any(token.kind == "comment" for token in tokens)


def _spaced(tokens: Sequence[OutlineToken]) -> str:
    return "".join(gap + token.text for gap, token in zip(_gaps(tokens), tokens, strict=True))


def _gaps(tokens: Sequence[OutlineToken]) -> Iterator[str]:
    """Yield, for each token of a head, the space or the empty text between it and the token before."""
    before, is_operand, is_sign, is_unit = "", False, False, False
    for token in tokens:
        if token.kind == "comment":
            yield " "
            continue
        is_glued = (
            before in ("", "(", "[")
            or token.text in (")", "]", ",", ":")
            or is_sign
            or (is_unit and "/" in (before, token.text))
        )
        yield "" if is_glued or (token.text == "(" and is_operand) else " "
        is_sign = token.text == "-" and not is_operand
        is_unit = (is_unit and "/" in (before, token.text)) or (is_operand and token.kind == "word")
        is_value = token.kind in ("word", "number") and token.text not in RESERVED
        is_operand = token.text == ")" or (
            is_value and (before, token.text) not in (("send", "parts"), ("tree", "parts"), ("", "branch"))
        )
        before = token.text


_LEVELS = (
    ("or",),
    ("and",),
    ("not",),
    ("==", "!=", "<", "<=", ">", ">="),
    ("|",),
    ("^",),
    ("&",),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "mod"),
)
"""The operators, loosest first, as ``grammar/zen.lark`` has them; minus before a number binds tighter than all."""

_LEVEL = {operator: level for level, operators in enumerate(_LEVELS) for operator in operators}
_COMPARISON = _LEVEL["=="]
_MINUS = len(_LEVELS)


def expression_text(expression: s.Expression) -> str:
    """Return the expression as its author could have written it."""
    return _text(expression, 0)


def _text(e: s.Expression, loosest: int) -> str:
    """Return ``e`` as text, in parentheses if its operator binds looser than ``loosest``."""
    match e:
        case s.Integer():
            return f"({e.value})" if e.value < 0 and loosest > _MINUS else str(e.value)
        case s.Variable():
            return e.name
        case s.Apply():
            return f"{e.function}({', '.join(_text(argument, 0) for argument in e.arguments)})"
        case s.Unary():
            level = _LEVEL["not"] if e.operator == "not" else _MINUS
            operator = "not " if e.operator == "not" else "-"
            text = operator + _text(e.operand, level)
        case s.Binary():
            level = _LEVEL[e.operator]
            left = _text(e.left, level + (level == _COMPARISON))
            text = f"{left} {e.operator} {_text(e.right, level + 1)}"
    return f"({text})" if level < loosest else text


def parts_text(parts: s.Parts) -> str:
    """Return ``all``, ``part E`` or ``parts E .. E``."""
    match parts:
        case s.All():
            return "all"
        case s.Part():
            return f"part {expression_text(parts.index)}"
        case _:
            return f"parts {expression_text(parts.first)} .. {expression_text(parts.last)}"
