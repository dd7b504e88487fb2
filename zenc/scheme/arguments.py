"""Values of the arguments of a word and of parameters: constant expressions, each matched with the name it is for."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from zenc.common.wording import count, did_you_mean
from zenc.errors import Span
from zenc.language.schedule import BUILTIN_NAMES, FUNCTIONS, Apply, Binary, Expression, Integer, Unary, Variable
from zenc.language.syntax import AveragingSyntax, CompressSyntax, SchemeSyntax, StrategySyntax
from zenc.language.terms import Argument, Number, Parameter, Setting, Word
from zenc.language.topology_syntax import TopologySyntax
from zenc.scheme.collector import Collector, listed, unknown

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
    """The parameters of a scheme; a value is None where it could not be found, which has been reported already."""

    values: dict[str, int | float | None] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    @property
    def bound(self) -> tuple[tuple[str, int | float], ...]:
        """The parameters that have a value, with it."""
        return tuple((name, value) for name, value in self.values.items() if value is not None)


class _CantTellError(Exception):
    """An expression without a value; the report has the reason."""


def constant(value: Expression | Number, environment: Environment, report: Collector) -> int | float | None:
    """Return the number of ``value``; None, with a diagnostic, where it has no value."""
    if isinstance(value, Number):
        return value.value
    if isinstance(value, Variable) and value.name in environment.values:
        environment.used.add(value.name)
        return environment.values[value.name]
    return constant_integer(value, environment, report)


def constant_integer(value: Expression | Number, environment: Environment, report: Collector) -> int | None:
    """Return the integer of ``value``; None, with a diagnostic, where it has no value or is no integer."""
    if isinstance(value, Number):
        report.error("wrong-type", f"an integer is needed here, not {value.value}", value.span)
        return None
    try:
        return _Evaluation(environment, report).of(value)
    except _CantTellError:
        return None


def integer_within(
    value: Expression | Number,
    span: Span | None,
    allowed: Container[int],
    what: str,
    environment: Environment,
    report: Collector,
) -> int | None:
    """Return the integer of ``value``, one of those ``allowed``; None, with a diagnostic in words, for any other."""
    found = constant_integer(value, environment, report)
    if found is None or found in allowed:
        return found
    report.error("wrong-range", f"{what}, not {found}", span)
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
                return self._binary(e)
            case Apply():
                return self._apply(e)

    def _fail(self, id: str, message: str, span: Span | None) -> _CantTellError:
        self.report.error(id, message, span)
        return _CantTellError()

    def _variable(self, e: Variable) -> int:
        if e.name not in self.environment.values:
            suggestion = did_you_mean(e.name, self.environment.values)
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
        value = int(_OPERATIONS[e.operator](left, right))
        if not -_LIMIT < value < _LIMIT:
            raise self._fail("wrong-range", "the value is beyond 2^64", e.span)
        return value

    def _apply(self, e: Apply) -> int:
        arguments = [self.of(argument) for argument in e.arguments]
        if e.function == "log2" and arguments[:1] and arguments[0] <= 0:
            raise self._fail("wrong-range", f"log2 of {arguments[0]}; it must be positive", e.span)
        try:
            return int(_FUNCTIONS[e.function](*arguments))
        except (KeyError, TypeError):
            raise self._fail("unknown-function", f"there is no function '{e.function}' like this", e.span) from None


def literal(value: int, span: Span | None = None) -> Expression:
    """Return ``value`` as an author writes it: a literal is never negative, a minus before it is an operator."""
    return Integer(value, span=span) if value >= 0 else Unary("-", Integer(-value, span=span), span=span)


G = TypeVar("G", Argument, Setting)

_INTEGER = re.compile(r"[+-]?(0[xX](_?[0-9a-fA-F])+|[0-9](_?[0-9])*)")
_LONGEST = 100


def match_arguments(word: Word, names: Sequence[str], report: Collector) -> dict[str, Argument]:
    """Match arguments, given by place or by name, with ``names``; report and leave out those that do not fit."""
    return match_given(word.name.text, word.arguments, names, report)


def match_given(word: str, arguments: Sequence[G], names: Sequence[str], report: Collector) -> dict[str, G]:
    """Match the arguments of ``word`` as ``match_arguments`` does; they may be quantities as well."""
    matched: dict[str, G] = {}
    for place, argument in enumerate(arguments):
        if argument.name is not None:
            name = argument.name.text
            if name not in names:
                choices = f"; one of {listed(names)}" if names else ""
                message = f"'{word}' takes no argument '{name}'{choices}{did_you_mean(name, names)}"
                report.error("wrong-arguments", message, argument.name.span)
                continue
        elif place < len(names):
            name = names[place]
        else:
            most = f"at most {count(len(names), 'argument')} ({listed(names)})" if names else "no arguments"
            message = f"'{word}' takes {most}, and this is number {place + 1}"
            report.error("wrong-arguments", message, argument.span)
            break
        if name in matched:
            report.error("wrong-arguments", f"'{word}' is given '{name}' twice", argument.span)
        else:
            matched[name] = argument
    return matched


def check_parameters(parameters: Sequence[Parameter], report: Collector) -> None:
    """Report names of parameters that occur twice, or are those of the language."""
    seen: set[str] = set()
    for parameter in parameters:
        if parameter.name.text in BUILTIN_NAMES or parameter.name.text in FUNCTIONS:
            message = f"'{parameter.name.text}' is a name of the language"
            report.error("shadowed-name", message, parameter.name.span, help="choose another name")
        if parameter.name.text in seen:
            message = f"there are two parameters '{parameter.name.text}'"
            report.error("duplicate-parameter", message, parameter.name.span)
        seen.add(parameter.name.text)


Parametrised: TypeAlias = SchemeSyntax | StrategySyntax | AveragingSyntax | TopologySyntax | CompressSyntax
_KINDS = {
    SchemeSyntax: "scheme",
    StrategySyntax: "strategy",
    AveragingSyntax: "averaging",
    TopologySyntax: "topology",
    CompressSyntax: "compressor",
}


def bind_parameters(declared: Parametrised, given: Mapping[str, int | float | str], report: Collector) -> Environment:
    """Bind the parameters of ``declared`` to the values ``given``, which may be strings, or else to their defaults."""
    kind = _KINDS[type(declared)]
    check_parameters(declared.parameters, report)
    names = [parameter.name.text for parameter in declared.parameters]
    for name in given:
        if name not in names:
            message = f"{kind} '{declared.name.text}' has no parameters, so '{name}' can't be set"
            if names:
                message = unknown("parameter", name, names)
            report.error("unknown-parameter", message, declared.name.span)
    environment = Environment()
    for parameter in declared.parameters:
        name = parameter.name.text
        default = None if parameter.default is None else constant(parameter.default, Environment(), report)
        if name in given:
            environment.values[name] = _given(parameter, default, given[name], report)
            continue
        environment.values[name] = default
        if parameter.default is None:
            help = f"write a default, {name} = ..., or give a value"
            report.error("missing-parameter", f"parameter '{name}' has no value", parameter.span, help=help)
    return environment


def _given(
    parameter: Parameter, default: int | float | None, given: int | float | str, report: Collector
) -> int | float | None:
    """Return the value given from outside, as a number of the default's kind; None, with a diagnostic, otherwise."""
    value = _number(given)
    integer = isinstance(default, int)
    if value is None or (integer and isinstance(value, float)):
        kind = "an integer" if integer else "a number"
        message = f"parameter '{parameter.name.text}' must be {kind}, not {str(given)[:40]!r}"
        report.error("wrong-type", message, parameter.span)
        return None
    if isinstance(value, int) and not -(2**64) < value < 2**64:
        report.error("wrong-range", f"the value of '{parameter.name.text}' is beyond 2^64", parameter.span)
        return None
    return float(value) if isinstance(default, float) else value


def _number(given: object) -> int | float | None:
    if isinstance(given, bool):
        return None
    if isinstance(given, str):
        return _number_from_text(given.strip())
    if isinstance(given, int):
        return given
    return given if isinstance(given, float) and math.isfinite(given) else None


def _number_from_text(text: str) -> int | float | None:
    if len(text) > _LONGEST:
        return None
    if _INTEGER.fullmatch(text):
        return int(text, 16 if "x" in text.lower() else 10)
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
