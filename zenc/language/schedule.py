"""Schedules as data: what the author of a scheme says about who sends what to whom.

    Block     = Statement*
    Statement = For(variable, first, last, Block)          # first .. last, inclusive; empty if last < first
              | If(condition, Block, Block)
              | Let(name, Expression)
              | Require(condition, message)           # must hold for every rank that comes to it
              | Step(Block)                                # moves that run together; holds no other Step
              | Send(Parts, origin?, to, where?)           # evaluated for every rank; only inside a Step
    Parts     = All | Part(Expression) | PartRange(first, last)
    Expression = Integer | Variable | Unary(operator, e) | Binary(operator, e, e) | Apply(function, e*)

Expressions are integers; comparisons and ``and``/``or``/``not`` give 0 or 1. Names that are always there:
``rank``, ``size``, ``parts`` (1 under centralization, else ``size``) and ``one_shot`` (0 or 1).
A ``Send`` with an ``origin`` (``send all of ORIGIN to RANK``) forwards only what rank ORIGIN contributed.

Spans take no part in comparisons: two schedules are equal when they say the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from zenc.errors import Span

BUILTIN_NAMES = ("rank", "size", "parts", "one_shot")
FUNCTIONS = {"log2": 1, "min": 2, "max": 2}
"""Function name -> number of arguments. ``log2`` rounds down."""

UNARY_OPERATORS = ("-", "not")
BINARY_OPERATORS = (
    "or", "and", "==", "!=", "<", "<=", ">", ">=", "|", "^", "&", "<<", ">>", "+", "-", "*", "/", "mod",
)  # fmt: skip
"""``/`` rounds down, ``mod`` is never negative, ``^`` is exclusive or."""


@dataclass(frozen=True, slots=True)
class Integer:
    value: int
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Unary:
    operator: str
    operand: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Binary:
    operator: str
    left: Expression
    right: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Apply:
    function: str
    arguments: tuple[Expression, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


Expression: TypeAlias = Integer | Variable | Unary | Binary | Apply


@dataclass(frozen=True, slots=True)
class All:
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Part:
    index: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PartRange:
    first: Expression
    last: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


Parts: TypeAlias = All | Part | PartRange


@dataclass(frozen=True, slots=True)
class Send:
    parts: Parts
    to: Expression
    origin: Expression | None = None
    where: Expression | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Step:
    body: Block
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class For:
    variable: str
    first: Expression
    last: Expression
    body: Block
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class If:
    condition: Expression
    then: Block
    otherwise: Block = ()
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Let:
    name: str
    value: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Require:
    """``require CONDITION "MESSAGE"``: the number of ranks, or a parameter, must be such that CONDITION is not 0."""

    condition: Expression
    message: str
    span: Span | None = field(default=None, compare=False, repr=False)


Statement: TypeAlias = For | If | Let | Require | Step | Send
Block: TypeAlias = tuple[Statement, ...]
