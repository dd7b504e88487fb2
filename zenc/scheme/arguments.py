"""The arguments of a word, and the values of a scheme's parameters, each matched with the name it is for."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from zenc.did_you_mean import did_you_mean
from zenc.language.schedule import BUILTIN_NAMES, FUNCTIONS
from zenc.language.syntax import Argument, Parameter, SchemeSyntax, Word
from zenc.language.topology_syntax import TopologySyntax
from zenc.plurals import count
from zenc.scheme.collector import Collector, listed, unknown
from zenc.scheme.constants import Environment, constant

_INTEGER = re.compile(r"[+-]?(0[xX](_?[0-9a-fA-F])+|[0-9](_?[0-9])*)")
_LONGEST = 100


def match_arguments(word: Word, names: Sequence[str], report: Collector) -> dict[str, Argument]:
    """Name -> argument, given by place or by name. What does not fit is reported and left out."""
    matched: dict[str, Argument] = {}
    for place, argument in enumerate(word.arguments):
        if argument.name is not None:
            name = argument.name.text
            if name not in names:
                choices = f"; one of {listed(names)}" if names else ""
                message = f"'{word.name.text}' takes no argument '{name}'{choices}{did_you_mean(name, names)}"
                report.error("wrong-arguments", message, argument.name.span)
                continue
        elif place < len(names):
            name = names[place]
        else:
            message = f"'{word.name.text}' takes {_count(names)}, and this is number {place + 1}"
            report.error("wrong-arguments", message, argument.span)
            break
        if name in matched:
            report.error("wrong-arguments", f"'{word.name.text}' is given '{name}' twice", argument.span)
        else:
            matched[name] = argument
    return matched


def _count(names: Sequence[str]) -> str:
    if not names:
        return "no arguments"
    return f"at most {count(len(names), 'argument')} ({listed(names)})"


def check_parameters(parameters: Sequence[Parameter], report: Collector) -> None:
    """Report names that are there twice, or are those of the language."""
    seen: set[str] = set()
    for parameter in parameters:
        if parameter.name.text in BUILTIN_NAMES or parameter.name.text in FUNCTIONS:
            message = f"'{parameter.name.text}' is a name of the language"
            report.error("shadowed-name", message, parameter.name.span, help="choose another name")
        if parameter.name.text in seen:
            message = f"there are two parameters '{parameter.name.text}'"
            report.error("duplicate-parameter", message, parameter.name.span)
        seen.add(parameter.name.text)


def bind_parameters(
    declared: SchemeSyntax | TopologySyntax, given: Mapping[str, int | float | str], report: Collector
) -> Environment:
    """The parameters of ``declared`` with the values ``given``, which may be strings, or else their defaults."""
    kind = "scheme" if isinstance(declared, SchemeSyntax) else "topology"
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
    """The value given from outside, as a number of the kind that the default is of."""
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
