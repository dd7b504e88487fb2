"""Name check of topologies: the names and functions in the expressions of their declarations."""

from __future__ import annotations

from dataclasses import dataclass, field

from zenc.language import topology_syntax
from zenc.language.schedule import Let, expressions_of
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
            for expression in expressions_of(declaration, topology_syntax.Declaration):
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
