"""Scope check of schedules and topologies: names are declared, functions have their arguments, sends stand in steps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from zenc.common.wording import count, did_you_mean
from zenc.errors import Span
from zenc.language import schedule as s
from zenc.language import topology_syntax
from zenc.language.schedule import Let, expressions_of
from zenc.scheme.collector import Collector, listed


@dataclass
class Checker:
    """A check of blocks in which ``parameters`` are known; ``used`` are those of them that occurred."""

    parameters: Sequence[str]
    report: Collector
    used: set[str] = field(default_factory=set)
    _met: set[int] = field(default_factory=set)
    """The ids of those ``let`` statements whose names occurred."""

    def check(self, block: s.Block) -> None:
        """Report errors in ``block``, the body of a push or a pull."""
        self._block(block, dict.fromkeys((*s.BUILTIN_NAMES, *self.parameters)), in_step=False)

    def _block(self, block: s.Block, scope: dict[str, s.Let | None], in_step: bool) -> None:
        """Check a block; ``scope`` maps the names known here to the ``let`` that made them."""
        scope = dict(scope)
        made: list[s.Let] = []
        for statement in block:
            self._statement(statement, scope, in_step)
            if isinstance(statement, s.Let):
                if self.declare(statement.name, statement.span, scope):
                    made.append(statement)
                scope[statement.name] = statement
        for let in made:
            if id(let) not in self._met and not let.name.startswith("_"):
                self.report.warn("unused-name", f"'{let.name}' is used nowhere", name_span(let.name, let.span))

    def _statement(self, statement: s.Statement, scope: dict[str, s.Let | None], in_step: bool) -> None:
        if isinstance(statement, s.Send) and not in_step:
            message = "a send stands in a step: step { send ... }"
            self.report.error("send-outside-step", message, head_span(statement, "send"))
        for expression in s.expressions_of(statement, s.Statement):
            self.expression(expression, scope)
        match statement:
            case s.Step():
                if in_step:
                    message = "a step inside a step: the moves of one step already run together"
                    self.report.error("nested-step", message, head_span(statement, "step"))
                self._block(statement.body, scope, in_step=True)
            case s.Trees():
                self._block(statement.body, scope, in_step)
            case s.SpanningTree():
                self._branches(statement)
            case s.If():
                self._block(statement.then, scope, in_step)
                self._block(statement.otherwise, scope, in_step)
            case s.For():
                self.declare(statement.variable, statement.span, scope)
                self._block(statement.body, {**scope, statement.variable: None}, in_step)

    def _branches(self, tree: s.SpanningTree) -> None:
        """Report branches that leave where the tree has not come: only names and numbers tell, not their values."""
        reached = {tree.root}
        for branch in tree.branches:
            if branch.source not in reached:
                message = "the tree has not come here: no branch before this one leads to what it leaves"
                help = "write the branches from the root on, each rank as it is written where a branch leads to it"
                self.report.error("loose-branch", message, branch.source.span, help=help)
            reached.update(branch.to)

    def declare(self, name: str, span: Span | None, scope: Mapping[str, s.Let | None]) -> bool:
        """Return whether ``name``, declared by the statement at ``span``, is free in ``scope``; otherwise report it."""
        if name in s.BUILTIN_NAMES or name in s.FUNCTIONS:
            message = f"'{name}' is a name of the language"
        elif name in scope:
            message = f"'{name}' has a meaning here already"
        else:
            return True
        self.report.error("shadowed-name", message, name_span(name, span), help="choose another name")
        return False

    def expression(self, e: s.Expression, scope: Mapping[str, s.Let | None]) -> None:
        """Report the names and functions of ``e`` that mean nothing, and divisions by a literal zero."""
        if isinstance(e, s.Variable):
            self._variable(e, scope)
        elif isinstance(e, s.Apply):
            self._apply(e)
        for child in s.children(e):
            self.expression(child, scope)
        if isinstance(e, s.Binary) and e.operator in ("/", "mod") and e.right == s.Integer(0):
            self.report.error("division-by-zero", "this divides by zero", e.right.span)

    def _variable(self, e: s.Variable, scope: Mapping[str, s.Let | None]) -> None:
        if e.name not in scope:
            message = f"unknown name '{e.name}'{did_you_mean(e.name, scope)}"
            self.report.error("unknown-name", message, e.span, notes=(f"known here: {listed(scope) or 'no name'}",))
        elif scope[e.name] is None:
            self.used.add(e.name)
        else:
            self._met.add(id(scope[e.name]))

    def _apply(self, e: s.Apply) -> None:
        wanted = s.FUNCTIONS.get(e.function)
        if wanted is None:
            message = f"unknown function '{e.function}'; one of {', '.join(s.FUNCTIONS)}"
            help = "a range stands in a loop: for i in 0 .. size - 1" if e.function == "range" else None
            self.report.error("unknown-function", message + did_you_mean(e.function, s.FUNCTIONS), e.span, help=help)
        elif wanted != len(e.arguments):
            message = f"{e.function} takes {count(wanted, 'argument')}, not {len(e.arguments)}"
            self.report.error("wrong-arguments", message, e.span)

    def check_topology(self, topology: topology_syntax.TopologySyntax) -> None:
        """Report unknown names and functions in ``topology``; without those, also parameters that are used nowhere."""
        self._declarations(topology.body, dict.fromkeys(parameter.name.text for parameter in topology.parameters))
        if not self.report.failed:  # the error may lie in its use
            self.report.unused(topology.parameters, self.used)

    def _declarations(self, body: topology_syntax.Declarations, scope: dict[str, Let | None]) -> None:
        scope = dict(scope)
        lets: list[Let] = []
        for declaration in body:
            for expression in expressions_of(declaration, topology_syntax.Declaration):
                self.expression(expression, scope)
            match declaration:
                case Let():
                    if self.declare(declaration.name, declaration.span, scope):
                        lets.append(declaration)
                    scope[declaration.name] = None
                case topology_syntax.ForEach():
                    self.declare(declaration.variable, declaration.span, scope)
                    self._declarations(declaration.body, {**scope, declaration.variable: None})
                case topology_syntax.When():
                    self._declarations(declaration.then, scope)
                    self._declarations(declaration.otherwise, scope)
        for let in lets:
            if let.name not in self.used and not let.name.startswith("_"):
                self.report.warn("unused-name", f"'{let.name}' is used nowhere", name_span(let.name, let.span))


def head_span(statement: s.Statement, word: str) -> Span | None:
    """Return the place of the word that a statement starts with."""
    span = statement.span
    return span and Span(span.source, span.start, span.start + len(word))


def name_span(name: str, span: Span | None) -> Span | None:
    """Return the place of ``name`` in the statement at ``span``: the second word of its text."""
    found = span and re.compile(rf"\b{re.escape(name)}\b").search(span.source.text, span.start + 3, span.end)
    return Span(span.source, found.start(), found.end()) if span and found else span
