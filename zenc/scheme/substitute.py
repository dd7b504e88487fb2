"""Substitution of parameters in a schedule by their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from zenc.language.schedule import (
    All,
    Apply,
    Binary,
    Block,
    Expression,
    For,
    If,
    Integer,
    Let,
    Part,
    PartRange,
    Parts,
    Require,
    Send,
    Statement,
    Step,
    Unary,
    Variable,
)


def names_in(expression: Expression) -> Iterator[Variable]:
    """The variables of ``expression``."""
    match expression:
        case Variable():
            yield expression
        case Unary():
            yield from names_in(expression.operand)
        case Binary():
            yield from names_in(expression.left)
            yield from names_in(expression.right)
        case Apply():
            for argument in expression.arguments:
                yield from names_in(argument)
        case Integer():
            pass


@dataclass(frozen=True)
class Substitution:
    """Replaces variables by expressions. Nothing is captured: no statement may declare a name that is known."""

    values: Mapping[str, Expression]

    def block(self, block: Block) -> Block:
        """``block`` with the values in place of the names."""
        return tuple(self._statement(statement) for statement in block)

    def _statement(self, s: Statement) -> Statement:
        match s:
            case Let():
                return replace(s, value=self.expression(s.value))
            case Require():
                return replace(s, condition=self.expression(s.condition))
            case Step():
                return replace(s, body=self.block(s.body))
            case For():
                first, last = self.expression(s.first), self.expression(s.last)
                return replace(s, first=first, last=last, body=self.block(s.body))
            case If():
                condition = self.expression(s.condition)
                return replace(s, condition=condition, then=self.block(s.then), otherwise=self.block(s.otherwise))
            case Send():
                parts, to = self._parts(s.parts), self.expression(s.to)
                return Send(parts, to, self._maybe(s.origin), self._maybe(s.where), span=s.span)

    def _maybe(self, e: Expression | None) -> Expression | None:
        return None if e is None else self.expression(e)

    def _parts(self, parts: Parts) -> Parts:
        match parts:
            case All():
                return parts
            case Part():
                return replace(parts, index=self.expression(parts.index))
            case PartRange():
                return replace(parts, first=self.expression(parts.first), last=self.expression(parts.last))

    def expression(self, e: Expression) -> Expression:
        """``e`` with the values in place of the names, at the places of the names."""
        match e:
            case Integer():
                return e
            case Variable():
                return replace(self.values[e.name], span=e.span) if e.name in self.values else e
            case Unary():
                return replace(e, operand=self.expression(e.operand))
            case Binary():
                return replace(e, left=self.expression(e.left), right=self.expression(e.right))
            case Apply():
                return replace(e, arguments=tuple(self.expression(argument) for argument in e.arguments))
