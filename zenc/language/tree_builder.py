"""Builder of the syntax tree: parser steps to dataclasses. Only numbers are checked, and names in topologies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from zenc.errors import Diagnostic, Source, Span, Spanned, printable
from zenc.language import schedule as s
from zenc.language import syntax, terms, topology_syntax
from zenc.language.lexer import Token
from zenc.language.recovery import DECLARED
from zenc.language.rules import Rules, listed, node, only, present

_Phase: TypeAlias = tuple[str, s.Block, Span]

GREATEST_INTEGER = 2**64 - 1
CHOOSE = "choose"
_LONGEST_LITERAL = 100
"""Characters. No number in range is longer, and reading digits takes quadratic time."""


def _one_line(string: Token) -> str:
    """Return the text between the quotes; each run of white space counts as one space."""
    return printable(" ".join(string.text[1:-1].split()))


def _of_kind(kind: type, items: Iterable[object]) -> tuple[Any, ...]:
    return tuple(item for item in items if isinstance(item, kind))


# Methods of several nodes: their items, and what becomes of them


def _worded(kind: Callable[..., Spanned]) -> Callable[..., Spanned]:
    """Return the method of a node made of a word's text and the other fields of ``kind``."""
    return lambda _rules, span, word, *rest: kind(word.text, *rest, span=span)


def _given(kind: Callable[..., Spanned]) -> Callable[..., Spanned]:
    """Return the method of a node made of a value and its optional name."""
    return lambda _rules, span, name, value: kind(value, name, span=span)


def _between(kind: Callable[..., Spanned]) -> Callable[..., Spanned]:
    """Return the method of a node made of two places with a sign between them, and further items."""
    return lambda _rules, span, source, sign, target, *more: kind(source, target, sign.text == "->", *more, span=span)


def _grouping(kind: Callable[..., Spanned]) -> Callable[..., Spanned]:
    """Return the method of a node that has its items in one field."""
    return lambda _rules, span, *items: kind(items, span=span)


def _declaration(made: Callable[..., Spanned], *kinds: type) -> Callable[..., Spanned]:
    """Return the method of a declaration ``made`` of a head and items, which are in a field for each of ``kinds``."""
    return lambda _rules, span, name, parameters, doc, *items: made(
        name, parameters or (), doc, *(_of_kind(kind, items) for kind in kinds), span=span
    )


def _branching(kind: type[Any]) -> Callable[..., Spanned]:
    """Return the method of a node made of a condition, a block, and after ``else`` a block or another such node."""

    def method(_rules: Rules, span: Span, condition: s.Expression, then: Any, otherwise: Any) -> Any:
        return kind(condition, then, (otherwise,) if isinstance(otherwise, kind) else otherwise or (), span=span)

    return method


def _phase(kind: str) -> Callable[..., _Phase]:
    """Return the method of a phase, or of both."""
    return lambda _rules, span, block: (kind, block, span)


class Builder(Rules):
    """Builds the syntax tree of one source, by methods with the names of nodes and terminals, as ``Rules`` has it."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.declaring_words: list[Token] = []
        """Names that are words of topologies, wherever they stand."""

    # Tokens

    def NAME(self, token: Token) -> terms.Name:
        if token.text in DECLARED:
            self.declaring_words.append(token)
        return terms.Name(token.text, span=self._token_span(token))

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

    start_file = start_expression = start_phrase = key = only
    start_block = block = declarations = parameters = arguments = settings = listed

    def file(self, span: Span, *items: object) -> syntax.File:
        kinds = (
            syntax.Import,
            syntax.Schedule,
            syntax.SchemeSyntax,
            topology_syntax.TopologySyntax,
            syntax.CompressSyntax,
            syntax.StrategySyntax,
            syntax.AveragingSyntax,
        )
        return syntax.File(self.source, *(_of_kind(kind, items) for kind in kinds))

    def import_(self, span: Span, path: Token) -> syntax.Import:
        return syntax.Import(path.text[1:-1], span=self._token_span(path))

    scheme = _declaration(syntax.SchemeSyntax, syntax.EntrySyntax, syntax.TierSyntax, syntax.ChoiceSyntax)
    compress = _declaration(syntax.CompressSyntax, syntax.EntrySyntax)
    strategy = _declaration(syntax.StrategySyntax, syntax.OptionSyntax, syntax.RuleSyntax)
    averaging = _declaration(syntax.AveragingSyntax, syntax.EntrySyntax, syntax.AlternationSyntax, s.Require)

    def schedule(
        self, span: Span, name: terms.Name | None, parameters: Any, doc: str | None, *phases: _Phase
    ) -> syntax.Schedule:
        """Build a schedule; of a phase written twice the first counts, and the spans report the second later."""
        push, pull = (
            [(block, span) for phase, block, span in phases if phase in (kind, "trees")] for kind in ("push", "pull")
        )
        first = [phase[0][0] if phase else () for phase in (push, pull)]
        spans = [tuple(span for _, span in phase) for phase in (push, pull)]
        return syntax.Schedule(name, parameters or (), doc, first[0], first[1], spans[0], spans[1], span=span)

    def schedule_value(self, span: Span, doc: str | None, *phases: _Phase) -> syntax.Schedule:
        return self.schedule(span, None, None, doc, *phases)

    def trees(self, span: Span, chunks: s.Expression, *body: s.Statement) -> s.Block:
        return (s.Trees(chunks, body, span=span),)

    push, pull, both = map(_phase, ("push", "pull", "trees"))

    parameter = node(terms.Parameter)

    def doc(self, span: Span, string: Token) -> str:
        return _one_line(string)

    # Entries

    entry = node(syntax.EntrySyntax)
    tier = node(syntax.TierSyntax)
    argument = _given(terms.Argument)

    def choice(self, span: Span, arguments: Any, *candidates: terms.Word) -> syntax.ChoiceSyntax:
        word = Span(span.source, span.start, span.start + len(CHOOSE))
        settings = terms.Word(terms.Name(CHOOSE, span=word), arguments or (), span=word)
        return syntax.ChoiceSyntax(settings, candidates, span=span)

    def phrase(self, span: Span, *items: Any) -> terms.Phrase:
        return terms.Phrase(items[::2], tuple(connective.text for connective in items[1::2]), span=span)

    def word(self, span: Span, name: terms.Name, arguments: Any) -> terms.Word:
        return terms.Word(name, arguments or (), span=span)

    def number(self, span: Span, *items: Any) -> terms.Number:
        *sign, value = items
        return terms.Number(-value if sign else value, span=span)

    def option(self, span: Span, key: terms.Name, name: terms.Name, settings: Any) -> syntax.OptionSyntax:
        return syntax.OptionSyntax(key, name, settings or (), span=span)

    rule = node(syntax.RuleSyntax)
    larger_than = node(syntax.LargerThanSyntax)
    all_others = node(syntax.AllOthersSyntax)

    def named_like(self, span: Span, pattern: Token) -> syntax.NamedLikeSyntax:
        return syntax.NamedLikeSyntax(printable(pattern.text[1:-1]), span=span)

    named_division = node(syntax.NamedDivisionSyntax)
    across = node(syntax.LevelDivisionSyntax)
    ranks = listed

    alternation = _grouping(syntax.AlternationSyntax)
    listed_division = _grouping(syntax.ListedDivisionSyntax)

    def inside(self, span: Span, level: terms.Word) -> syntax.LevelDivisionSyntax:
        return syntax.LevelDivisionSyntax(None, level, span=span)

    # Statements

    step = node(s.Step)
    let = _worded(s.Let)

    def require(self, span: Span, condition: s.Expression, message: Token) -> s.Require:
        return s.Require(condition, _one_line(message), span=span)

    def send(self, span: Span, parts: s.Parts, origin: Any, to: s.Expression, where: Any) -> s.Send:
        return s.Send(parts, to, origin, where, span=span)

    def tree(self, span: Span, parts: s.Parts, *branches: s.Branch) -> s.SpanningTree:
        return s.SpanningTree(parts, branches, span=span)

    def branch(self, span: Span, source: s.Expression, arrow: Token, *to: s.Expression) -> s.Branch:
        return s.Branch(source, to, span=span)

    all = node(s.All)
    part = node(s.Part)
    part_range = node(s.PartRange)

    # Expressions

    integer = node(s.Integer)
    unary = _worded(s.Unary)
    variable = _worded(s.Variable)

    def binary(self, span: Span, left: s.Expression, operator: Token, right: s.Expression) -> s.Binary:
        return s.Binary(operator.text, left, right, span=span)

    def call(self, span: Span, function: terms.Name, *arguments: s.Expression | None) -> s.Apply:
        return s.Apply(function.text, present(arguments), span=span)

    # Topologies

    def topology(
        self, span: Span, name: terms.Name, parameters: Any, doc: str | None, *body: topology_syntax.Declaration
    ) -> topology_syntax.TopologySyntax:
        for token in self.declaring_words:
            place = self._token_span(token)
            if span.start <= place.start < span.end:
                message = f"'{token.text}' is a word of topologies, and can't be a name in one"
                self.problems.append(Diagnostic("syntax", message, place))
        return topology_syntax.TopologySyntax(name, parameters or (), doc, body, span=span)

    def like(self, span: Span, what: terms.Name, settings: Any) -> topology_syntax.Like:
        return topology_syntax.Like(what, False, settings or (), span=span)

    def like_file(self, span: Span, *items: Any) -> topology_syntax.Like:
        *paths, settings = items
        first, *more = [terms.Name(path.text[1:-1], span=self._token_span(path)) for path in paths]
        return topology_syntax.Like(first, True, settings or (), tuple(more), span=span)

    setting = _given(terms.Setting)
    level = node(topology_syntax.LevelOf)
    switch = node(topology_syntax.SwitchOf)
    memory = node(topology_syntax.MemoryOf)
    quantity = node(terms.Quantity)
    link = _between(topology_syntax.LinkOf)
    unlink = _between(topology_syntax.Unlink)
    for_each = _worded(topology_syntax.ForEach)
    when = _branching(topology_syntax.When)
    levels = _grouping(topology_syntax.Levels)

    def place(self, span: Span, name: terms.Name, *indices: Any) -> topology_syntax.PlaceSyntax:
        return topology_syntax.PlaceSyntax(name, present(indices), span=span)

    def unit(self, span: Span, what: Token, per: Token | None) -> terms.Name:
        return terms.Name(f"{what.text}/{per.text}" if per else what.text, span=span)


# The rules that are Python's own words.
setattr(Builder, "import", Builder.import_)
setattr(Builder, "for", _worded(s.For))
setattr(Builder, "if", _branching(s.If))
