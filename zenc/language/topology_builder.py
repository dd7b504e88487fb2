"""Builder of topology syntax: parser steps to ``TopologySyntax``; the other nodes are in ``tree_builder``."""

from __future__ import annotations

from typing import Any

from zenc.errors import Diagnostic, Source, Span
from zenc.language import topology_syntax
from zenc.language.lexer import Token
from zenc.language.rules import Rules
from zenc.language.syntax import Name


class ClusterRules(Rules):
    """The rules of topologies. ``Rules`` calls the method named like a node with its span and its children."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.declaring_words: list[Token] = []
        """Names that are words of topologies, wherever they stand."""

    def topology(self, span: Span, children: list[Any]) -> topology_syntax.TopologySyntax:
        name, parameters, doc, *body = children
        for token in self.declaring_words:
            place = self._token_span(token)
            if span.start <= place.start < span.end:
                message = f"'{token.text}' is a word of topologies, and can't be a name in one"
                self.problems.append(Diagnostic("syntax", message, place))
        return topology_syntax.TopologySyntax(name, parameters or (), doc, tuple(body), span)

    def declarations(self, span: Span, children: list[Any]) -> topology_syntax.Declarations:
        return tuple(children)

    def like(self, span: Span, children: list[Any]) -> topology_syntax.Like:
        what, settings = children
        return topology_syntax.Like(what, False, settings or (), (), span)

    def like_file(self, span: Span, children: list[Any]) -> topology_syntax.Like:
        *paths, settings = children
        first, *more = [Name(path.text[1:-1], self._token_span(path)) for path in paths]
        return topology_syntax.Like(first, True, settings or (), tuple(more), span)

    def settings(self, span: Span, children: list[Any]) -> tuple[topology_syntax.Setting, ...]:
        return tuple(child for child in children if child is not None)

    def setting(self, span: Span, children: list[Any]) -> topology_syntax.Setting:
        name, value = children
        return topology_syntax.Setting(value, name, span)

    def levels(self, span: Span, children: list[Any]) -> topology_syntax.Levels:
        return topology_syntax.Levels(tuple(children), span)

    def level(self, span: Span, children: list[Any]) -> topology_syntax.LevelOf:
        name, count = children
        return topology_syntax.LevelOf(name, count, span)

    def switch(self, span: Span, children: list[Any]) -> topology_syntax.SwitchOf:
        return topology_syntax.SwitchOf(children[0], span)

    def link(self, span: Span, children: list[Any]) -> topology_syntax.LinkOf:
        source, sign, target, bandwidth, latency = children
        return topology_syntax.LinkOf(source, target, sign.text == "->", bandwidth, latency, span)

    def unlink(self, span: Span, children: list[Any]) -> topology_syntax.Unlink:
        source, sign, target = children
        return topology_syntax.Unlink(source, target, sign.text == "->", span)

    def memory(self, span: Span, children: list[Any]) -> topology_syntax.MemoryOf:
        place, size = children
        return topology_syntax.MemoryOf(place, size, span)

    def place(self, span: Span, children: list[Any]) -> topology_syntax.PlaceSyntax:
        name, *indices = children
        return topology_syntax.PlaceSyntax(name, tuple(index for index in indices if index is not None), span)

    def for_each(self, span: Span, children: list[Any]) -> topology_syntax.ForEach:
        variable, first, last, body = children
        return topology_syntax.ForEach(variable.text, first, last, body, span)

    def when(self, span: Span, children: list[Any]) -> topology_syntax.When:
        condition, then, otherwise = children
        if isinstance(otherwise, topology_syntax.When):
            otherwise = (otherwise,)
        return topology_syntax.When(condition, then, otherwise or (), span)

    def quantity(self, span: Span, children: list[Any]) -> topology_syntax.Quantity:
        value, unit = children
        return topology_syntax.Quantity(value, unit, span)

    def unit(self, span: Span, children: list[Any]) -> Name:
        what, per = children
        return Name(f"{what.text}/{per.text}" if per else what.text, span)
