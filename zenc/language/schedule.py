"""Schedules as data: which rank sends what to whom, as statements and integer expressions.

    Block     = Statement*
    Statement = For(variable, first, last, Block)          # first .. last, inclusive; empty if last < first
              | If(condition, Block, Block)
              | Let(name, Expression)
              | Require(condition, message)           # must hold for every rank that comes to it
              | Step(Block)                                # moves that run together; holds no other Step
              | Send(Parts, origin?, to, where?)           # evaluated for every rank; only inside a Step
              | Trees(chunks, Block)                       # outside of steps: makes as many as its trees need
              | SpanningTree(Parts, Branch+)                       # only inside Trees, beside Let and Require
    Branch    = source, to: Expression+
    Parts     = All | Part(Expression) | PartRange(first, last)
    Expression = Integer | Variable | Unary(operator, e) | Binary(operator, e, e) | Apply(function, e*)

Expressions are integers; comparisons and ``and``/``or``/``not`` give 0 or 1. Names that are always there:
``rank``, ``size``, ``parts`` (1 under centralization, else ``size``) and ``one_shot`` (0 or 1).
A ``SpanningTree`` grows from the rank that its first branch leaves, and is evaluated for that rank alone.
A ``Send`` with an ``origin`` (``send all of ORIGIN to RANK``) forwards only what rank ORIGIN contributed.

Spans take no part in comparisons: two schedules are equal when they say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import UnionType
from typing import Any, TypeAlias, TypeVar

from zenc.errors import Spanned

BUILTIN_NAMES = ("rank", "size", "parts", "one_shot")
FUNCTIONS = {"log2": 1, "min": 2, "max": 2}
"""Function name -> number of arguments. ``log2`` rounds down."""

UNARY_OPERATORS = ("-", "not")
BINARY_OPERATORS = (
    "or", "and", "==", "!=", "<", "<=", ">", ">=", "|", "^", "&", "<<", ">>", "+", "-", "*", "/", "mod",
)  # fmt: skip
"""``/`` rounds down, ``mod`` is never negative, ``^`` is exclusive or."""


@dataclass(frozen=True, slots=True)
class Integer(Spanned):
    """A literal from 0 to 2^64 - 1."""

    value: int


@dataclass(frozen=True, slots=True)
class Variable(Spanned):
    """A parameter, a ``let`` or ``for`` variable, or one of ``BUILTIN_NAMES``."""

    name: str


@dataclass(frozen=True, slots=True)
class Unary(Spanned):
    """``OPERATOR OPERAND``, with an operator of ``UNARY_OPERATORS``."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary(Spanned):
    """``LEFT OPERATOR RIGHT``, with an operator of ``BINARY_OPERATORS``."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Apply(Spanned):
    """``FUNCTION(ARGUMENTS)``, with a function of ``FUNCTIONS``."""

    function: str
    arguments: tuple[Expression, ...]


Expression: TypeAlias = Integer | Variable | Unary | Binary | Apply


@dataclass(frozen=True, slots=True)
class All(Spanned):
    """``all``: every part of the tensor."""


@dataclass(frozen=True, slots=True)
class Part(Spanned):
    """``part INDEX``, from 0 to ``parts`` - 1."""

    index: Expression


@dataclass(frozen=True, slots=True)
class PartRange(Spanned):
    """``parts FIRST .. LAST``: both ends included; none if LAST < FIRST."""

    first: Expression
    last: Expression


Parts: TypeAlias = All | Part | PartRange


@dataclass(frozen=True, slots=True)
class Send(Spanned):
    """``send PARTS of ORIGIN to TO where WHERE``: each rank for which WHERE is not 0 sends once."""

    parts: Parts
    to: Expression
    origin: Expression | None = None
    where: Expression | None = None


@dataclass(frozen=True, slots=True)
class Step(Spanned):
    """``step { ... }``: all its moves run together, and the next step starts from what they brought."""

    body: Block


@dataclass(frozen=True, slots=True)
class For(Spanned):
    """``for VARIABLE in FIRST .. LAST { ... }``: both ends included; never if LAST < FIRST."""

    variable: str
    first: Expression
    last: Expression
    body: Block


@dataclass(frozen=True, slots=True)
class If(Spanned):
    """``if CONDITION { ... } else { ... }``: of each rank by itself; ``else if`` is an If in ``otherwise``."""

    condition: Expression
    then: Block
    otherwise: Block = ()


@dataclass(frozen=True, slots=True)
class Let(Spanned):
    """``let NAME = VALUE``, for the statements after it in its block."""

    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Require(Spanned):
    """``require CONDITION "MESSAGE"``: the number of ranks, or a parameter, must be such that CONDITION is not 0."""

    condition: Expression
    message: str


@dataclass(frozen=True, slots=True)
class Branch(Spanned):
    """``branch SOURCE -> TO, TO``: what the tree brings to SOURCE goes on to each TO."""

    source: Expression
    to: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class SpanningTree(Spanned):
    """``tree PARTS { branch ... }``: the way of PARTS from a root to all ranks, and in a push from all to the root.

    The root is the source of the first branch; every other source stands as a ``to`` before it.
    """

    parts: Parts
    branches: tuple[Branch, ...]

    @property
    def root(self) -> Expression:
        """The rank from which the tree grows."""
        return self.branches[0].source


@dataclass(frozen=True, slots=True)
class Trees(Spanned):
    """``trees(CHUNKS) { tree ... }``: trees that carry at once; their parts follow each other in CHUNKS pieces."""

    chunks: Expression
    body: Block


Statement: TypeAlias = For | If | Let | Require | Step | Send | Trees | SpanningTree
Block: TypeAlias = tuple[Statement, ...]

NodeT = TypeVar("NodeT", bound=Spanned)


def children(node: Spanned) -> Iterator[Any]:
    """Return the nodes right below ``node``, in the order of its fields."""
    for name in node.__slots__:
        value = getattr(node, name)
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, Spanned):
                yield each


def rebuilt(node: NodeT, change: Callable[[Any], Any]) -> NodeT:
    """Return ``node`` with ``change(child)`` in place of every node right below it."""
    changes: dict[str, Any] = {}
    for name in node.__slots__:
        value = getattr(node, name)
        if isinstance(value, Spanned):
            changes[name] = change(value)
        elif isinstance(value, tuple):
            changes[name] = tuple(map(change, value))
    return replace(node, **changes) if changes else node


def names_in(expression: Expression) -> Iterator[str]:
    """Yield the variables of ``expression``, each as often as it occurs."""
    if isinstance(expression, Variable):
        yield expression.name
    for child in children(expression):
        yield from names_in(child)


def expressions_of(node: Spanned, inner: UnionType) -> Iterator[Expression]:
    """Yield the whole expressions in ``node`` in order, without those in nodes of the types ``inner`` below it."""
    for child in children(node):
        if isinstance(child, Expression):
            yield child
        elif not isinstance(child, inner):
            yield from expressions_of(child, inner)


@dataclass(frozen=True)
class Substitution:
    """A replacement of variables by expressions. Nothing is captured: no statement may declare a name that is known."""

    values: Mapping[str, Expression]

    def block(self, block: Block) -> Block:
        """Return ``block`` with the values in place of the names."""
        return tuple(rebuilt(statement, self._node) for statement in block)

    def _node(self, node: Any) -> Any:
        return self.expression(node) if isinstance(node, Expression) else rebuilt(node, self._node)

    def expression(self, e: Expression) -> Expression:
        """Return ``e`` with the values in place of the names."""
        if isinstance(e, Variable):
            return replace(self.values[e.name], span=e.span) if e.name in self.values else e
        return rebuilt(e, self.expression)
