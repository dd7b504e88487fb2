"""Integer expressions, evaluated for many ranks at once.

A value is a Python int, the same for all ranks, or an int64 array with one entry for each rank of the scope.
Everything stays below 2^62 in magnitude, so that no sum can leave int64; a product or shift that would is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from zenc.errors import Diagnostic, Span
from zenc.language.schedule import Apply, Binary, Expression, Integer, Unary, Variable

Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Value: TypeAlias = int | Ints

LIMIT = 1 << 62


class EvaluationError(Exception):
    """An error of an expression without a value for some rank, caught by the evaluating pass, which knows the phase."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


@dataclass(frozen=True, slots=True)
class Scope:
    """The ranks [k] of an evaluation, and the names they know; ``values['rank']`` is ``ranks``."""

    ranks: Ints
    values: Mapping[str, Value]

    def where(self, mask: Mask) -> Scope:
        """Return the scope of the ranks at which ``mask`` [k] holds."""
        if mask.all():
            return self
        values = {name: value[mask] if isinstance(value, np.ndarray) else value for name, value in self.values.items()}
        return Scope(self.ranks[mask], values)

    def bind(self, name: str, value: Value) -> Scope:
        """Return the scope with one name more, or with another value of it."""
        return Scope(self.ranks, {**self.values, name: value})


def scope_of(size: int, parts: int, one_shot: bool) -> Scope:
    """Return the scope of a whole group: every rank, and the names that are always there."""
    ranks = np.arange(size, dtype=np.int64)
    return Scope(ranks, {"rank": ranks, "size": size, "parts": parts, "one_shot": int(one_shot)})


def evaluate(expression: Expression, scope: Scope) -> Value:
    """Return the value of ``expression`` for the ranks of ``scope``; raises EvaluationError where it has none."""
    match expression:
        case Integer(value):
            return _bounded(value, expression.span, scope)
        case Variable(name):
            if name not in scope.values:
                raise EvaluationError(Diagnostic("unknown-name", f"nothing is called {name!r} here", expression.span))
            return scope.values[name]
        case Unary("-", operand):
            return -evaluate(operand, scope)
        case Unary(_, operand):
            return _as_value(np.equal(evaluate(operand, scope), 0))
        case Binary("and" | "or", _, _):
            return _short_circuit(expression, scope)
        case Binary(operator, left, right):
            return _binary(operator, evaluate(left, scope), evaluate(right, scope), expression.span, scope)
        case Apply(function, arguments):
            return _apply(function, [evaluate(a, scope) for a in arguments], expression.span, scope)


def condition(expression: Expression, scope: Scope) -> Mask:
    """Return the mask [k] of the ranks of ``scope`` for which ``expression`` is not zero."""
    return np.broadcast_to(np.not_equal(evaluate(expression, scope), 0), scope.ranks.shape)


def spread(value: Value, scope: Scope) -> Ints:
    """Return ``value`` as an array [k], with one entry for each rank of ``scope``."""
    return np.broadcast_to(np.asarray(value, dtype=np.int64), scope.ranks.shape)


def _short_circuit(expression: Binary, scope: Scope) -> Value:
    """Evaluate the right side only for the ranks that need it: ``rank > 0 and 8 / rank > 2`` is safe."""
    left = condition(expression.left, scope)
    needed = left if expression.operator == "and" else ~left
    result = left.astype(np.int64)
    if needed.any():
        result[needed] = condition(expression.right, scope.where(needed)).astype(np.int64)
    return int(result[0]) if result.size and (result == result[0]).all() else result


def _binary(operator: str, left: Value, right: Value, span: Span | None, scope: Scope) -> Value:
    if operator in _COMPARISONS:
        return _as_value(_COMPARISONS[operator](left, right))
    if operator in ("/", "mod"):
        _ensure(np.not_equal(right, 0), "division-by-zero", "this divides by zero", span, scope)
        return left // right if operator == "/" else left % _magnitude(right)
    if operator in ("<<", ">>"):
        return _shift(operator, left, right, span, scope)
    if operator == "*":
        return _bounded(_where_it_fits(np.multiply(left, right, dtype=np.float64), left * right), span, scope)
    return _bounded(_ARITHMETIC[operator](left, right), span, scope)


def _magnitude(value: Value) -> Value:
    return abs(value) if isinstance(value, int) else np.abs(value)


def _shift(operator: str, left: Value, right: Value, span: Span | None, scope: Scope) -> Value:
    in_range = np.greater_equal(right, 0) & np.less(right, 63)
    _ensure(in_range, "bad-shift", "this shifts by less than 0 or more than 62 bits", span, scope)
    if operator == ">>":
        return left >> right
    return _bounded(_where_it_fits(np.ldexp(np.asarray(left, np.float64), right), left << right), span, scope)


def _where_it_fits(rounded: Any, exact: Value) -> Value:
    """Return ``exact``, or LIMIT where it has left int64, as its rounded value shows."""
    if isinstance(exact, int):
        return exact
    kept: Ints = np.where(np.abs(rounded) < 1.5 * LIMIT, exact, LIMIT)
    return kept


def _apply(function: str, values: list[Value], span: Span | None, scope: Scope) -> Value:
    if function == "log2":
        _ensure(np.greater(values[0], 0), "bad-log2", "log2 of a number below 1", span, scope)
        if isinstance(values[0], int):
            return values[0].bit_length() - 1
        return _exact_log2(values[0])
    first, second = values
    if isinstance(first, int) and isinstance(second, int):
        return min(first, second) if function == "min" else max(first, second)
    chosen: Ints = (np.minimum if function == "min" else np.maximum)(first, second)
    return chosen


def _exact_log2(values: Ints) -> Ints:
    """Return log2 rounded down, by bits: a float logarithm is off near powers of two."""
    result = np.zeros_like(values)
    for bits in (32, 16, 8, 4, 2, 1):
        larger = (values >> (result + bits)) > 0
        result = np.where(larger, result + bits, result)
    return result


def _as_value(truth: Any) -> Value:
    return truth.astype(np.int64) if isinstance(truth, np.ndarray) else int(truth)


def _bounded(value: Value, span: Span | None, scope: Scope) -> Value:
    within = abs(value) < LIMIT if isinstance(value, int) else np.abs(value) < LIMIT
    _ensure(within, *_TOO_LARGE, span, scope)
    return value


def _ensure(holds: Any, identifier: str, message: str, span: Span | None, scope: Scope) -> None:
    holds = np.broadcast_to(holds, scope.ranks.shape)
    if not holds.all():
        rank = int(scope.ranks[int(np.argmin(holds))])
        raise EvaluationError(Diagnostic(identifier, f"{message} for rank {rank}", span))


_TOO_LARGE = ("number-too-large", "this number is beyond 2^62")
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
}
