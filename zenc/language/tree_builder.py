"""Builder of the syntax tree: parser steps to dataclasses. Only numbers are checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias, TypeVar

from zenc.errors import Diagnostic, Span
from zenc.language import schedule as s
from zenc.language import syntax
from zenc.language.lexer import Token
from zenc.language.recovery import DECLARED
from zenc.language.topology_builder import ClusterRules
from zenc.language.topology_syntax import TopologySyntax

Children: TypeAlias = list[Any]
T = TypeVar("T")

GREATEST_INTEGER = 2**64 - 1
CHOOSE = "choose"
_LONGEST_LITERAL = 100
"""Characters. No number in range is longer, and reading digits takes quadratic time."""


def _present(children: Iterable[T | None]) -> tuple[T, ...]:
    return tuple(child for child in children if child is not None)


def _one_line(string: Token) -> str:
    """What stands between the quotes; each run of white space counts as one space."""
    return " ".join(string.text[1:-1].split())


class Builder(ClusterRules):
    """Builds the syntax tree of one source; ``problems`` holds what is wrong with its numbers.

    ``Rules`` calls the method named like a node of ``grammar/zen.lark`` with its span and its children, and the one
    named like a terminal with its token; what a method returns is a child of the node above.
    """

    # Tokens

    def NAME(self, token: Token) -> syntax.Name:
        if token.text in DECLARED:
            self.declaring_words.append(token)
        return syntax.Name(token.text, self._token_span(token))

    WORD = NAME

    def INTEGER(self, token: Token) -> int:
        digits = token.text.replace("_", "")
        value = int(digits, 16 if digits[:2] in ("0x", "0X") else 10) if len(digits) <= _LONGEST_LITERAL else None
        if value is None or value > GREATEST_INTEGER:
            self._too_great(token, "integers go up to 2^64 - 1")
            return 0
        return value

    def FLOAT(self, token: Token) -> float:
        value = float(token.text.replace("_", "")) if len(token.text) <= _LONGEST_LITERAL else float("inf")
        if value == float("inf"):
            self._too_great(token, "numbers go up to 1.8e308 and have at most 100 characters")
            return 0.0
        return value

    def _too_great(self, token: Token, limit: str) -> None:
        self.problems.append(
            Diagnostic("number-range", "this number is too great", self._token_span(token), help=limit)
        )

    # Files

    def start_file(self, span: Span, children: Children) -> syntax.File:
        (file,) = children
        assert isinstance(file, syntax.File)
        return file

    def file(self, span: Span, children: Children) -> syntax.File:
        return syntax.File(
            self.source,
            tuple(c for c in children if isinstance(c, syntax.Import)),
            tuple(c for c in children if isinstance(c, syntax.Schedule)),
            tuple(c for c in children if isinstance(c, syntax.SchemeSyntax)),
            tuple(c for c in children if isinstance(c, TopologySyntax)),
        )

    def import_(self, span: Span, children: Children) -> syntax.Import:
        (path,) = children
        return syntax.Import(path.text[1:-1], self._token_span(path))

    def scheme(self, span: Span, children: Children) -> syntax.SchemeSyntax:
        name, parameters, doc, *items = children
        entries = tuple(item for item in items if isinstance(item, syntax.EntrySyntax))
        tiers = tuple(item for item in items if isinstance(item, syntax.TierSyntax))
        choices = tuple(item for item in items if isinstance(item, syntax.ChoiceSyntax))
        return syntax.SchemeSyntax(name, parameters or (), doc, entries, span, tiers, choices)

    def schedule(self, span: Span, children: Children) -> syntax.Schedule:
        name, parameters, doc, *phases = children
        return self._schedule(span, name, parameters or (), doc, phases)

    def schedule_value(self, span: Span, children: Children) -> syntax.Schedule:
        doc, *phases = children
        return self._schedule(span, None, (), doc, phases)

    def _schedule(
        self,
        span: Span,
        name: syntax.Name | None,
        parameters: tuple[syntax.Parameter, ...],
        doc: str | None,
        phases: list[tuple[str, s.Block, Span]],
    ) -> syntax.Schedule:
        """Of a phase that is there twice the first counts; that it is there twice is told later, from the spans."""
        push = [(block, span) for phase, block, span in phases if phase == "push"]
        pull = [(block, span) for phase, block, span in phases if phase == "pull"]
        return syntax.Schedule(
            name,
            parameters,
            doc,
            push[0][0] if push else (),
            pull[0][0] if pull else (),
            tuple(span for _, span in push),
            tuple(span for _, span in pull),
            span,
        )

    def push(self, span: Span, children: Children) -> tuple[str, s.Block, Span]:
        return "push", children[0], span

    def pull(self, span: Span, children: Children) -> tuple[str, s.Block, Span]:
        return "pull", children[0], span

    def parameters(self, span: Span, children: Children) -> tuple[syntax.Parameter, ...]:
        return _present(children)

    def parameter(self, span: Span, children: Children) -> syntax.Parameter:
        name, default = children
        return syntax.Parameter(name, default, span)

    def doc(self, span: Span, children: Children) -> str:
        return _one_line(children[0])

    # Entries

    def entry(self, span: Span, children: Children) -> syntax.EntrySyntax:
        key, value = children
        return syntax.EntrySyntax(key, value, span)

    def tier(self, span: Span, children: Children) -> syntax.TierSyntax:
        name, size, scheme = children
        return syntax.TierSyntax(name, size, scheme, span)

    def choice(self, span: Span, children: Children) -> syntax.ChoiceSyntax:
        arguments, *candidates = children
        word = Span(span.source, span.start, span.start + len(CHOOSE))
        settings = syntax.Word(syntax.Name(CHOOSE, word), arguments or (), word)
        return syntax.ChoiceSyntax(settings, tuple(candidates), span)

    def key(self, span: Span, children: Children) -> syntax.Name:
        name: syntax.Name = children[0]
        return name

    def phrase(self, span: Span, children: Children) -> syntax.Phrase:
        return syntax.Phrase(tuple(children[::2]), tuple(c.text for c in children[1::2]), span)

    def word(self, span: Span, children: Children) -> syntax.Word:
        name, arguments = children
        return syntax.Word(name, arguments or (), span)

    def arguments(self, span: Span, children: Children) -> tuple[syntax.Argument, ...]:
        return _present(children)

    def argument(self, span: Span, children: Children) -> syntax.Argument:
        name, value = children
        return syntax.Argument(value, name, span)

    def number(self, span: Span, children: Children) -> syntax.Number:
        *sign, value = children
        return syntax.Number(-value if sign else value, span)

    # Statements

    def start_block(self, span: Span, children: Children) -> s.Block:
        return tuple(children)

    def block(self, span: Span, children: Children) -> s.Block:
        return tuple(children)

    def step(self, span: Span, children: Children) -> s.Step:
        return s.Step(children[0], span)

    def for_(self, span: Span, children: Children) -> s.For:
        variable, first, last, body = children
        return s.For(variable.text, first, last, body, span)

    def if_(self, span: Span, children: Children) -> s.If:
        condition, then, otherwise = children
        if isinstance(otherwise, s.If):
            otherwise = (otherwise,)
        return s.If(condition, then, otherwise or (), span)

    def let(self, span: Span, children: Children) -> s.Let:
        name, value = children
        return s.Let(name.text, value, span)

    def require(self, span: Span, children: Children) -> s.Require:
        condition, message = children
        return s.Require(condition, _one_line(message), span)

    def send(self, span: Span, children: Children) -> s.Send:
        parts, origin, to, where = children
        return s.Send(parts, to, origin, where, span)

    def all(self, span: Span, children: Children) -> s.All:
        return s.All(span)

    def part(self, span: Span, children: Children) -> s.Part:
        return s.Part(children[0], span)

    def part_range(self, span: Span, children: Children) -> s.PartRange:
        first, last = children
        return s.PartRange(first, last, span)

    # Expressions

    def start_expression(self, span: Span, children: Children) -> s.Expression:
        expression: s.Expression = children[0]
        return expression

    def binary(self, span: Span, children: Children) -> s.Binary:
        left, operator, right = children
        return s.Binary(operator.text, left, right, span)

    def unary(self, span: Span, children: Children) -> s.Unary:
        operator, operand = children
        return s.Unary(operator.text, operand, span)

    def integer(self, span: Span, children: Children) -> s.Integer:
        return s.Integer(children[0], span)

    def variable(self, span: Span, children: Children) -> s.Variable:
        return s.Variable(children[0].text, span)

    def call(self, span: Span, children: Children) -> s.Apply:
        function, *arguments = children
        return s.Apply(function.text, _present(arguments), span)


# The rules that are Python's own words.
setattr(Builder, "import", Builder.import_)
setattr(Builder, "for", Builder.for_)
setattr(Builder, "if", Builder.if_)
