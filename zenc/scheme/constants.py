"""Constants: the values of parameters, and of the expressions over them that a word takes as arguments."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field

from zenc.did_you_mean import did_you_mean
from zenc.errors import Span
from zenc.language.schedule import Apply, Binary, Expression, Integer, Unary, Variable
from zenc.language.syntax import Number
from zenc.scheme.collector import Collector

_LIMIT = 2**64

_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "or": lambda a, b: int(bool(a or b)),
    "and": lambda a, b: int(bool(a and b)),
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "|": operator.or_,
    "^": operator.xor,
    "&": operator.and_,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
    "mod": lambda a, b: a % abs(b),
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"log2": lambda a: a.bit_length() - 1, "min": min, "max": max}


@dataclass
class Environment:
    """The parameters of a scheme. A value is None where it could not be told, which has been reported already."""

    values: dict[str, int | float | None] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def names(self) -> tuple[str, ...]:
        """The names of all parameters, in the order of the text, for suggestions of a spelling."""
        return tuple(self.values)


class _CantTellError(Exception):
    """The expression has no value; why is in the report."""


def constant(value: Expression | Number, environment: Environment, report: Collector) -> int | float | None:
    """The number that ``value`` is; None, and a diagnostic, where it is none."""
    if isinstance(value, Number):
        return value.value
    if isinstance(value, Variable) and value.name in environment.values:
        environment.used.add(value.name)
        return environment.values[value.name]
    return constant_integer(value, environment, report)


def constant_integer(value: Expression | Number, environment: Environment, report: Collector) -> int | None:
    """The integer that ``value`` is; None, and a diagnostic, where it is none."""
    if isinstance(value, Number):
        report.error("wrong-type", f"an integer is needed here, not {value.value}", value.span)
        return None
    try:
        return _Evaluation(environment, report).of(value)
    except _CantTellError:
        return None


@dataclass
class _Evaluation:
    environment: Environment
    report: Collector

    def of(self, e: Expression) -> int:
        match e:
            case Integer():
                return e.value
            case Variable():
                return self._variable(e)
            case Unary():
                operand = self.of(e.operand)
                return int(not operand) if e.operator == "not" else -operand
            case Binary():
                return self._in_range(self._binary(e), e.span)
            case Apply():
                return self._apply(e)

    def _fail(self, id: str, message: str, span: Span | None) -> _CantTellError:
        self.report.error(id, message, span)
        return _CantTellError()

    def _variable(self, e: Variable) -> int:
        if e.name not in self.environment.values:
            suggestion = did_you_mean(e.name, self.environment.names())
            raise self._fail("unknown-name", f"'{e.name}' is no parameter of this scheme{suggestion}", e.span)
        self.environment.used.add(e.name)
        value = self.environment.values[e.name]
        if value is None:
            raise _CantTellError
        if isinstance(value, float):
            raise self._fail("wrong-type", f"an integer is needed here, and '{e.name}' is {value}", e.span)
        return value

    def _binary(self, e: Binary) -> int:
        left, right = self.of(e.left), self.of(e.right)
        if e.operator in ("/", "mod") and right == 0:
            raise self._fail("division-by-zero", "this divides by zero", e.right.span)
        if e.operator in ("<<", ">>") and not 0 <= right <= 64:
            raise self._fail("wrong-range", f"a shift by {right} places; it must be 0 to 64", e.right.span)
        return int(_OPERATIONS[e.operator](left, right))

    def _apply(self, e: Apply) -> int:
        arguments = [self.of(argument) for argument in e.arguments]
        if e.function == "log2" and arguments[:1] and arguments[0] <= 0:
            raise self._fail("wrong-range", f"log2 of {arguments[0]}; it must be positive", e.span)
        try:
            return int(_FUNCTIONS[e.function](*arguments))
        except (KeyError, TypeError):
            raise self._fail("unknown-function", f"there is no function '{e.function}' like this", e.span) from None

    def _in_range(self, value: int, span: Span | None) -> int:
        if not -_LIMIT < value < _LIMIT:
            raise self._fail("wrong-range", "the value is beyond 2^64", span)
        return value


def literal(value: int, span: Span | None = None) -> Expression:
    """``value`` as an author writes it: a literal is never negative, a minus before it is an operator."""
    return Integer(value, span=span) if value >= 0 else Unary("-", Integer(-value, span=span), span=span)
