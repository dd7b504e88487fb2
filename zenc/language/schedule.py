"""Schedules as data: which rank sends what to whom, as statements and integer expressions.

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
    """A literal from 0 to 2^64 - 1."""

    value: int
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Variable:
    """A parameter, a ``let`` or ``for`` variable, or one of ``BUILTIN_NAMES``."""

    name: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Unary:
    """``OPERATOR OPERAND``, with an operator of ``UNARY_OPERATORS``."""

    operator: str
    operand: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """``LEFT OPERATOR RIGHT``, with an operator of ``BINARY_OPERATORS``."""

    operator: str
    left: Expression
    right: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Apply:
    """``FUNCTION(ARGUMENTS)``, with a function of ``FUNCTIONS``."""

    function: str
    arguments: tuple[Expression, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


Expression: TypeAlias = Integer | Variable | Unary | Binary | Apply


@dataclass(frozen=True, slots=True)
class All:
    """``all``: every part of the tensor."""

    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Part:
    """``part INDEX``, from 0 to ``parts`` - 1."""

    index: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PartRange:
    """``parts FIRST .. LAST``: both ends included; none if LAST < FIRST."""

    first: Expression
    last: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


Parts: TypeAlias = All | Part | PartRange


@dataclass(frozen=True, slots=True)
class Send:
    """``send PARTS of ORIGIN to TO where WHERE``: each rank for which WHERE is not 0 sends once."""

    parts: Parts
    to: Expression
    origin: Expression | None = None
    where: Expression | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Step:
    """``step { ... }``: all its moves run together, and the next step starts from what they brought."""

    body: Block
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class For:
    """``for VARIABLE in FIRST .. LAST { ... }``: both ends included; never if LAST < FIRST."""

    variable: str
    first: Expression
    last: Expression
    body: Block
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class If:
    """``if CONDITION { ... } else { ... }``: of each rank by itself; ``else if`` is an If in ``otherwise``."""

    condition: Expression
    then: Block
    otherwise: Block = ()
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Let:
    """``let NAME = VALUE``, for the statements after it in its block."""

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
