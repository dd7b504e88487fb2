"""Builder of the syntax tree: parser steps to dataclasses. Only numbers are checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias, TypeVar

from zenc.errors import Diagnostic, Span
from zenc.language import schedule as s
from zenc.language import syntax
from zenc.language.lexer import Token
from zenc.language.recovery import DECLARED
from zenc.language.rules import node, present
from zenc.language.topology_builder import ClusterRules
from zenc.language.topology_syntax import TopologySyntax

T = TypeVar("T")
_Phase: TypeAlias = tuple[str, s.Block, Span]

GREATEST_INTEGER = 2**64 - 1
CHOOSE = "choose"
_LONGEST_LITERAL = 100
"""Characters. No number in range is longer, and reading digits takes quadratic time."""


def _one_line(string: Token) -> str:
    """What stands between the quotes; each run of white space counts as one space."""
    return " ".join(string.text[1:-1].split())


def _of_kind(kind: type[T], items: Iterable[object]) -> tuple[T, ...]:
    return tuple(item for item in items if isinstance(item, kind))


class Builder(ClusterRules):
    """Builds the syntax tree of one source, by methods with the names of nodes and terminals, as ``Rules`` has it."""

    # Tokens

    def NAME(self, token: Token) -> syntax.Name:
        if token.text in DECLARED:
            self.declaring_words.append(token)
        return syntax.Name(token.text, span=self._token_span(token))

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

    def start_file(self, span: Span, file: syntax.File) -> syntax.File:
        return file

    def file(self, span: Span, *items: object) -> syntax.File:
        return syntax.File(
            self.source,
            _of_kind(syntax.Import, items),
            _of_kind(syntax.Schedule, items),
            _of_kind(syntax.SchemeSyntax, items),
            _of_kind(TopologySyntax, items),
        )

    def import_(self, span: Span, path: Token) -> syntax.Import:
        return syntax.Import(path.text[1:-1], span=self._token_span(path))

    def scheme(
        self, span: Span, name: syntax.Name, parameters: Any, doc: str | None, *items: object
    ) -> syntax.SchemeSyntax:
        entries, tiers = _of_kind(syntax.EntrySyntax, items), _of_kind(syntax.TierSyntax, items)
        choices = _of_kind(syntax.ChoiceSyntax, items)
        return syntax.SchemeSyntax(name, parameters or (), doc, entries, tiers, choices, span=span)

    def schedule(
        self, span: Span, name: syntax.Name | None, parameters: Any, doc: str | None, *phases: _Phase
    ) -> syntax.Schedule:
        """Of a phase that is there twice the first counts; that it is there twice is told later, from the spans."""
        push = [(block, span) for phase, block, span in phases if phase == "push"]
        pull = [(block, span) for phase, block, span in phases if phase == "pull"]
        return syntax.Schedule(
            name,
            parameters or (),
            doc,
            push[0][0] if push else (),
            pull[0][0] if pull else (),
            tuple(span for _, span in push),
            tuple(span for _, span in pull),
            span=span,
        )

    def schedule_value(self, span: Span, doc: str | None, *phases: _Phase) -> syntax.Schedule:
        return self.schedule(span, None, None, doc, *phases)

    def push(self, span: Span, block: s.Block) -> _Phase:
        return "push", block, span

    def pull(self, span: Span, block: s.Block) -> _Phase:
        return "pull", block, span

    def parameters(self, span: Span, *items: syntax.Parameter | None) -> tuple[syntax.Parameter, ...]:
        return present(items)

    parameter = node(syntax.Parameter)

    def doc(self, span: Span, string: Token) -> str:
        return _one_line(string)

    # Entries

    entry = node(syntax.EntrySyntax)
    tier = node(syntax.TierSyntax)

    def choice(self, span: Span, arguments: Any, *candidates: syntax.Word) -> syntax.ChoiceSyntax:
        word = Span(span.source, span.start, span.start + len(CHOOSE))
        settings = syntax.Word(syntax.Name(CHOOSE, span=word), arguments or (), span=word)
        return syntax.ChoiceSyntax(settings, candidates, span=span)

    def key(self, span: Span, name: syntax.Name) -> syntax.Name:
        return name

    def phrase(self, span: Span, *items: Any) -> syntax.Phrase:
        return syntax.Phrase(items[::2], tuple(connective.text for connective in items[1::2]), span=span)

    def word(self, span: Span, name: syntax.Name, arguments: Any) -> syntax.Word:
        return syntax.Word(name, arguments or (), span=span)

    def arguments(self, span: Span, *items: syntax.Argument | None) -> tuple[syntax.Argument, ...]:
        return present(items)

    def argument(self, span: Span, name: syntax.Name | None, value: Any) -> syntax.Argument:
        return syntax.Argument(value, name, span=span)

    def number(self, span: Span, *items: Any) -> syntax.Number:
        *sign, value = items
        return syntax.Number(-value if sign else value, span=span)

    # Statements

    def start_block(self, span: Span, *statements: s.Statement) -> s.Block:
        return statements

    block = start_block
    step = node(s.Step)

    def for_(self, span: Span, variable: syntax.Name, *rest: Any) -> s.For:
        return s.For(variable.text, *rest, span=span)

    def if_(self, span: Span, condition: s.Expression, then: s.Block, otherwise: s.Block | s.If | None) -> s.If:
        rest = (otherwise,) if isinstance(otherwise, s.If) else otherwise or ()
        return s.If(condition, then, rest, span=span)

    def let(self, span: Span, name: syntax.Name, value: s.Expression) -> s.Let:
        return s.Let(name.text, value, span=span)

    def require(self, span: Span, condition: s.Expression, message: Token) -> s.Require:
        return s.Require(condition, _one_line(message), span=span)

    def send(self, span: Span, parts: s.Parts, origin: Any, to: s.Expression, where: Any) -> s.Send:
        return s.Send(parts, to, origin, where, span=span)

    all = node(s.All)
    part = node(s.Part)
    part_range = node(s.PartRange)

    # Expressions

    def start_expression(self, span: Span, expression: s.Expression) -> s.Expression:
        return expression

    def binary(self, span: Span, left: s.Expression, operator: Token, right: s.Expression) -> s.Binary:
        return s.Binary(operator.text, left, right, span=span)

    def unary(self, span: Span, operator: Token, operand: s.Expression) -> s.Unary:
        return s.Unary(operator.text, operand, span=span)

    integer = node(s.Integer)

    def variable(self, span: Span, name: syntax.Name) -> s.Variable:
        return s.Variable(name.text, span=span)

    def call(self, span: Span, function: syntax.Name, *arguments: s.Expression | None) -> s.Apply:
        return s.Apply(function.text, present(arguments), span=span)


# The rules that are Python's own words.
setattr(Builder, "import", Builder.import_)
setattr(Builder, "for", Builder.for_)
setattr(Builder, "if", Builder.if_)
