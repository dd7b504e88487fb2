"""Name check of topologies: the names and functions in the expressions of their declarations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from zenc.language import topology_syntax
from zenc.language.schedule import Expression, Let, Require
from zenc.language.syntax import Number
from zenc.scheme.collector import Collector
from zenc.scheme.scope import Checker, name_span


@dataclass
class Names:
    """Checks one topology; what is wrong goes to ``report``."""

    report: Collector
    _checker: Checker = field(init=False)

    def __post_init__(self) -> None:
        self._checker = Checker((), self.report)

    def check(self, topology: topology_syntax.TopologySyntax) -> None:
        """Report unknown names and functions in ``topology``; without those, also parameters that are used nowhere."""
        parameters = [parameter.name for parameter in topology.parameters]
        self._block(topology.body, dict.fromkeys(name.text for name in parameters))
        if self.report.failed:  # what uses it may be what is wrong
            return
        for name in parameters:
            if name.text not in self._checker.used:
                self.report.warn("unused-name", f"parameter '{name.text}' is used nowhere", name.span)

    def _block(self, body: topology_syntax.Declarations, scope: dict[str, Let | None]) -> None:
        scope = dict(scope)
        lets: list[Let] = []
        for declaration in body:
            for expression in expressions_of(declaration):
                self._checker.expression(expression, scope)
            match declaration:
                case Let():
                    if self._checker.declare(declaration.name, declaration.span, scope):
                        lets.append(declaration)
                    scope[declaration.name] = None
                case topology_syntax.ForEach():
                    self._checker.declare(declaration.variable, declaration.span, scope)
                    self._block(declaration.body, {**scope, declaration.variable: None})
                case topology_syntax.When():
                    self._block(declaration.then, scope)
                    self._block(declaration.otherwise, scope)
        for let in lets:
            if let.name not in self._checker.used and not let.name.startswith("_"):
                self.report.warn("unused-name", f"'{let.name}' is used nowhere", name_span(let.name, let.span))


def expressions_of(declaration: topology_syntax.Declaration) -> Iterator[Expression]:
    """The expressions of a declaration, without those of declarations inside it."""
    match declaration:
        case Let(value=value):
            yield value
        case Require(condition=condition) | topology_syntax.When(condition=condition):
            yield condition
        case topology_syntax.ForEach(first=first, last=last):
            yield from (first, last)
        case topology_syntax.Like(settings=settings):
            for setting in settings:
                yield from _of_value(setting.value)
        case _:
            yield from _of_change(declaration)


def _of_change(declaration: topology_syntax.Change) -> Iterator[Expression]:
    match declaration:
        case topology_syntax.Levels(levels=levels):
            yield from (level.count for level in levels)
        case topology_syntax.SwitchOf(place=place):
            yield from place.indices
        case topology_syntax.MemoryOf(place=place, size=size):
            yield from (*place.indices, *_of_value(size))
        case topology_syntax.Unlink(source=source, target=target):
            yield from (*source.indices, *target.indices)
        case topology_syntax.LinkOf():
            yield from (*declaration.source.indices, *declaration.target.indices)
            yield from _of_value(declaration.bandwidth)
            yield from _of_value(declaration.latency)


def _of_value(value: Expression | Number | topology_syntax.Quantity | None) -> Iterator[Expression]:
    if isinstance(value, topology_syntax.Quantity):
        value = value.value
    if value is not None and not isinstance(value, Number):
        yield value
