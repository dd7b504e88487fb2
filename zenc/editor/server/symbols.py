"""The names of a program: the places of their declaration and use.

Symbol = kind x name x Span x doc x Span*               # uses; the declaration is one of them
Kind   = scheme | strategy | averaging | schedule | compressor | topology | parameter | variable
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Literal

from zenc.errors import Source, Span
from zenc.language import syntax, terms, topology_syntax
from zenc.language.files import SourceFiles
from zenc.language.schedule import For, If, Let, Step, Variable
from zenc.language.syntax import (
    AveragingSyntax,
    CompressSyntax,
    EntrySyntax,
    File,
    Schedule,
    SchemeSyntax,
    StrategySyntax,
)
from zenc.language.terms import Argument, Name, Parameter, Phrase, Word
from zenc.scheme.arguments import Parametrised

Kind = Literal["scheme", "strategy", "averaging", "schedule", "compressor", "topology", "parameter", "variable"]
_NAMES: dict[str, Kind] = {
    "communication": "schedule",
    "announce": "schedule",
    "compress": "compressor",
    "sums": "scheme",
}
"""Keys whose values name declarations."""


@dataclass
class Symbol:
    """A name that is declared in a program; ``uses`` are its other places."""

    kind: Kind
    name: str
    declared: Span
    doc: str = ""
    uses: list[Span] = field(default_factory=list)
    parameters: dict[str, Symbol] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.uses.append(self.declared)


Scope = dict[str, Symbol]


def symbols_of(program: SourceFiles) -> list[Symbol]:
    """Return all names that ``program`` declares, with those of its imports and of the shipped schemes it names."""
    walker = _Walker()
    files = [*program.files, *(file for shipped in program.shipped for file in shipped.files)]
    for file in {file.source.name: file for file in reversed(files)}.values():
        walker.declare(file)
    for file in {file.source.name: file for file in reversed(files)}.values():
        walker.walk(file)
    return walker.found


def symbol_at(symbols: list[Symbol], source: str, offset: int) -> tuple[Symbol, Span] | None:
    """Return the symbol at ``offset`` of the source with this name, and the span there."""
    for symbol in symbols:
        for span in symbol.uses:
            if span.source.name == source and span.start <= offset <= span.end:
                return symbol, span
    return None


class _Walker:
    def __init__(self) -> None:
        self.found: list[Symbol] = []
        self._known: dict[tuple[Kind, str], Symbol] = {}
        """The names declared at the top of files."""

    def declare(self, file: File) -> None:
        for kind, declarations in _declarations(file):
            for declaration in declarations:
                name = declaration.name
                if name is None or name.span is None:
                    continue
                symbol = self._add(kind, name.text, name.span, declaration.doc or "")
                self._known[kind, name.text] = symbol
                for parameter in declaration.parameters:
                    self._declare_parameter(symbol, parameter)

    def _declare_parameter(self, of: Symbol, parameter: Parameter) -> None:
        if parameter.name.span:
            own = self._add("parameter", parameter.name.text, parameter.name.span, f"of {of.kind} {of.name}")
            of.parameters[parameter.name.text] = own

    def _add(self, kind: Kind, name: str, span: Span, doc: str = "") -> Symbol:
        self.found.append(Symbol(kind, name, span, doc))
        return self.found[-1]

    def walk(self, file: File) -> None:
        for kind, declarations in _declarations(file):
            for declaration in declarations:
                known = self._known.get((kind, declaration.name.text)) if declaration.name else None
                scope = dict(known.parameters) if known else {}
                for parameter in declaration.parameters:
                    self._visit(parameter.default, scope)
                if isinstance(declaration, SchemeSyntax):
                    self._scheme(declaration, scope)
                elif isinstance(declaration, CompressSyntax):
                    for entry in declaration.entries:
                        self._entry(entry, scope)
                elif isinstance(declaration, StrategySyntax):
                    self._strategy(declaration, scope)
                elif isinstance(declaration, AveragingSyntax):
                    self._averaging(declaration, scope)
                elif isinstance(declaration, Schedule):
                    self._blocks(declaration, scope)
                else:
                    self._block(declaration.body, scope)

    def _scheme(self, scheme: SchemeSyntax, scope: Scope) -> None:
        for entry in scheme.entries:
            self._entry(entry, scope)
        for tier in scheme.tiers:
            self._visit(tier.size, scope)
            self._word(tier.scheme, "scheme", scope)
        for choice in scheme.choices:
            self._choice(choice, scope)

    def _choice(self, choice: syntax.ChoiceSyntax, scope: Scope) -> None:
        self._visit(choice.settings.arguments, scope)
        for candidate in choice.candidates:
            self._word(candidate, "scheme", scope)

    def _strategy(self, strategy: StrategySyntax, scope: Scope) -> None:
        for option in strategy.options:
            self._visit(option.settings, scope)
        for rule in strategy.rules:
            self._visit(rule.tensors, scope)
            if isinstance(rule.sums, Word):
                self._word(rule.sums, "scheme", scope)
            else:
                self._choice(rule.sums, scope)

    def _averaging(self, averaging: AveragingSyntax, scope: Scope) -> None:
        self._visit(averaging.alternations, scope)
        for entry in averaging.entries:
            self._entry(entry, scope)

    def _entry(self, entry: EntrySyntax, scope: Scope) -> None:
        if isinstance(entry.value, Schedule):
            self._blocks(entry.value, scope)
        elif isinstance(entry.value, Phrase):
            for word in entry.value.words:
                self._word(word, _NAMES.get(entry.key.text), scope)

    def _blocks(self, schedule: Schedule, scope: Scope) -> None:
        self._block(schedule.push, scope)
        self._block(schedule.pull, scope)

    def _word(self, word: Word, kind: Kind | None, scope: Scope) -> None:
        named = self._use(self._known.get((kind, word.name.text)), word.name.span) if kind else None
        self._arguments(word.arguments, named, scope)

    def _arguments(self, arguments: tuple[Argument | terms.Setting, ...], named: Symbol | None, scope: Scope) -> None:
        for argument in arguments:
            if argument.name and named:
                self._use(named.parameters.get(argument.name.text), argument.name.span)
            self._visit(argument.value, scope)

    def _use(self, symbol: Symbol | None, span: Span | None) -> Symbol | None:
        if symbol and span and span not in symbol.uses:
            symbol.uses.append(span)
        return symbol

    def _block(self, block: tuple[object, ...], scope: Scope) -> None:
        scope = dict(scope)
        for statement in block:
            self._visit(statement, scope)

    def _visit(self, node: object, scope: Scope) -> None:
        match node:
            case Variable():
                self._use(scope.get(node.name), node.span)
            case Let():
                self._visit(node.value, scope)
                self._bind(node.name, node.span, scope)
            case For() | topology_syntax.ForEach():
                self._visit((node.first, node.last), scope)
                inner = dict(scope)
                self._bind(node.variable, node.span, inner)
                self._block(node.body, inner)
            case If() | topology_syntax.When():
                self._visit(node.condition, scope)
                self._block(node.then, scope)
                self._block(node.otherwise, scope)
            case Step():
                self._block(node.body, scope)
            case topology_syntax.Like():
                named = None if node.is_file else self._known.get(("topology", node.what.text))
                self._arguments(node.settings, self._use(named, node.what.span), scope)
            case _:
                for child in _children(node):
                    self._visit(child, scope)

    def _bind(self, name: str, span: Span | None, scope: Scope) -> None:
        found = (
            re.compile(rf"\b{re.escape(name)}\b").search(span.source.text, span.start + 3, span.end) if span else None
        )
        if span and found:
            scope[name] = self._add("variable", name, Span(span.source, found.start(), found.end()))


def _declarations(file: File) -> Iterator[tuple[Kind, tuple[Parametrised | Schedule, ...]]]:
    yield "schedule", file.schedules
    yield "compressor", file.compressors
    yield "scheme", file.schemes
    yield "strategy", file.strategies
    yield "averaging", file.averagings
    yield "topology", file.topologies


def _children(node: object) -> Iterator[object]:
    if isinstance(node, tuple):
        yield from node
    elif is_dataclass(node) and not isinstance(node, Source | Span | Name):
        yield from (getattr(node, each.name) for each in fields(node) if each.name != "span")
