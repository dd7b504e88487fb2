"""Expressions and parts -> canonical text, which parses back to an equal tree, with the fewest parentheses."""

from __future__ import annotations

from zenc.language import schedule as s

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
    """The expression as its author could have written it."""
    return _text(expression, 0)


def _text(e: s.Expression, loosest: int) -> str:
    """``e``, in parentheses if its operator binds looser than ``loosest``."""
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
    """``all``, ``part E`` or ``parts E .. E``."""
    match parts:
        case s.All():
            return "all"
        case s.Part():
            return f"part {expression_text(parts.index)}"
        case _:
            return f"parts {expression_text(parts.first)} .. {expression_text(parts.last)}"
