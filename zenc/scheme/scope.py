"""Scope check of schedules: every name declared, every function with its arguments, sends inside of steps alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from zenc.did_you_mean import did_you_mean
from zenc.errors import Span
from zenc.language.schedule import (
    BUILTIN_NAMES,
    FUNCTIONS,
    Apply,
    Binary,
    Block,
    Expression,
    For,
    If,
    Integer,
    Let,
    Send,
    Statement,
    Step,
    Variable,
    children,
    expressions_of,
)
from zenc.plurals import count
from zenc.scheme.collector import Collector, listed


@dataclass
class Checker:
    """Checks blocks in which ``parameters`` are known; ``used`` are those of them that were met."""

    parameters: Sequence[str]
    report: Collector
    used: set[str] = field(default_factory=set)
    _met: set[int] = field(default_factory=set)
    """The ids of those ``let`` statements whose names were met."""

    def check(self, block: Block) -> None:
        """Report what is wrong in ``block``, the body of a push or a pull."""
        self._block(block, dict.fromkeys((*BUILTIN_NAMES, *self.parameters)), in_step=False)

    def _block(self, block: Block, scope: dict[str, Let | None], in_step: bool) -> None:
        """``scope`` holds the names that are known here, and what is known of the names a ``let`` made."""
        scope = dict(scope)
        made: list[Let] = []
        for statement in block:
            self._statement(statement, scope, in_step)
            if isinstance(statement, Let):
                if self.declare(statement.name, statement.span, scope):
                    made.append(statement)
                scope[statement.name] = statement
        for let in made:
            if id(let) not in self._met and not let.name.startswith("_"):
                self.report.warn("unused-name", f"'{let.name}' is used nowhere", name_span(let.name, let.span))

    def _statement(self, statement: Statement, scope: dict[str, Let | None], in_step: bool) -> None:
        if isinstance(statement, Send) and not in_step:
            message = "a send stands in a step: step { send ... }"
            self.report.error("send-outside-step", message, head_span(statement, "send"))
        for expression in expressions_of(statement, Statement):
            self.expression(expression, scope)
        match statement:
            case Step():
                if in_step:
                    message = "a step inside a step: the moves of one step already run together"
                    self.report.error("nested-step", message, head_span(statement, "step"))
                self._block(statement.body, scope, in_step=True)
            case If():
                self._block(statement.then, scope, in_step)
                self._block(statement.otherwise, scope, in_step)
            case For():
                self.declare(statement.variable, statement.span, scope)
                self._block(statement.body, {**scope, statement.variable: None}, in_step)

    def declare(self, name: str, span: Span | None, scope: Mapping[str, Let | None]) -> bool:
        """Whether ``name``, which the statement at ``span`` declares, is free in ``scope``; else that is reported."""
        if name in BUILTIN_NAMES or name in FUNCTIONS:
            message = f"'{name}' is a name of the language"
        elif name in scope:
            message = f"'{name}' has a meaning here already"
        else:
            return True
        self.report.error("shadowed-name", message, name_span(name, span), help="choose another name")
        return False

    def expression(self, e: Expression, scope: Mapping[str, Let | None]) -> None:
        """Report the names and functions of ``e`` that mean nothing, and divisions by a literal zero."""
        if isinstance(e, Variable):
            self._variable(e, scope)
        elif isinstance(e, Apply):
            self._apply(e)
        for child in children(e):
            self.expression(child, scope)
        if isinstance(e, Binary) and e.operator in ("/", "mod") and e.right == Integer(0):
            self.report.error("division-by-zero", "this divides by zero", e.right.span)

    def _variable(self, e: Variable, scope: Mapping[str, Let | None]) -> None:
        if e.name not in scope:
            message = f"unknown name '{e.name}'{did_you_mean(e.name, scope)}"
            self.report.error("unknown-name", message, e.span, notes=(f"known here: {listed(scope) or 'no name'}",))
        elif scope[e.name] is None:
            self.used.add(e.name)
        else:
            self._met.add(id(scope[e.name]))

    def _apply(self, e: Apply) -> None:
        wanted = FUNCTIONS.get(e.function)
        if wanted is None:
            message = f"unknown function '{e.function}'; one of {', '.join(FUNCTIONS)}"
            help = "a range stands in a loop: for i in 0 .. size - 1" if e.function == "range" else None
            self.report.error("unknown-function", message + did_you_mean(e.function, FUNCTIONS), e.span, help=help)
        elif wanted != len(e.arguments):
            message = f"{e.function} takes {count(wanted, 'argument')}, not {len(e.arguments)}"
            self.report.error("wrong-arguments", message, e.span)


def head_span(statement: Statement, word: str) -> Span | None:
    """The word that a statement starts with."""
    span = statement.span
    return span and Span(span.source, span.start, span.start + len(word))


def name_span(name: str, span: Span | None) -> Span | None:
    """The place of ``name`` in the statement at ``span``: the second word of its text."""
    found = span and re.compile(rf"\b{re.escape(name)}\b").search(span.source.text, span.start + 3, span.end)
    return Span(span.source, found.start(), found.end()) if span and found else span
