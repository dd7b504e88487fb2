"""Steps of reading -> topologies, as data. One method a node; the others are in ``build``."""

from __future__ import annotations

from typing import Any

from zenc.errors import Diagnostic, Source, Span
from zenc.language import cluster
from zenc.language.lexer import Token
from zenc.language.rules import Rules
from zenc.language.syntax import Name


class ClusterRules(Rules):
    """The rules of topologies."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.declaring_words: list[Token] = []
        """Names that are words of topologies, wherever they stand."""

    def topology(self, span: Span, children: list[Any]) -> cluster.Topology:
        name, parameters, doc, *body = children
        for token in self.declaring_words:
            place = self._token_span(token)
            if span.start <= place.start < span.end:
                message = f"'{token.text}' is a word of topologies, and can't be a name in one"
                self.problems.append(Diagnostic("syntax", message, place))
        return cluster.Topology(name, parameters or (), doc, tuple(body), span)

    def declarations(self, span: Span, children: list[Any]) -> cluster.Declarations:
        return tuple(children)

    def like(self, span: Span, children: list[Any]) -> cluster.Like:
        what, settings = children
        return cluster.Like(what, False, settings or (), (), span)

    def like_file(self, span: Span, children: list[Any]) -> cluster.Like:
        *paths, settings = children
        first, *more = [Name(path.text[1:-1], self._token_span(path)) for path in paths]
        return cluster.Like(first, True, settings or (), tuple(more), span)

    def settings(self, span: Span, children: list[Any]) -> tuple[cluster.Setting, ...]:
        return tuple(child for child in children if child is not None)

    def setting(self, span: Span, children: list[Any]) -> cluster.Setting:
        name, value = children
        return cluster.Setting(value, name, span)

    def levels(self, span: Span, children: list[Any]) -> cluster.Levels:
        return cluster.Levels(tuple(children), span)

    def level(self, span: Span, children: list[Any]) -> cluster.LevelOf:
        name, count = children
        return cluster.LevelOf(name, count, span)

    def switch(self, span: Span, children: list[Any]) -> cluster.SwitchOf:
        return cluster.SwitchOf(children[0], span)

    def link(self, span: Span, children: list[Any]) -> cluster.LinkOf:
        source, sign, target, bandwidth, latency = children
        return cluster.LinkOf(source, target, sign.text == "->", bandwidth, latency, span)

    def unlink(self, span: Span, children: list[Any]) -> cluster.Unlink:
        source, sign, target = children
        return cluster.Unlink(source, target, sign.text == "->", span)

    def memory(self, span: Span, children: list[Any]) -> cluster.MemoryOf:
        place, size = children
        return cluster.MemoryOf(place, size, span)

    def place(self, span: Span, children: list[Any]) -> cluster.Place:
        name, *indices = children
        return cluster.Place(name, tuple(index for index in indices if index is not None), span)

    def for_each(self, span: Span, children: list[Any]) -> cluster.ForEach:
        variable, first, last, body = children
        return cluster.ForEach(variable.text, first, last, body, span)

    def when(self, span: Span, children: list[Any]) -> cluster.When:
        condition, then, otherwise = children
        if isinstance(otherwise, cluster.When):
            otherwise = (otherwise,)
        return cluster.When(condition, then, otherwise or (), span)

    def quantity(self, span: Span, children: list[Any]) -> cluster.Quantity:
        value, unit = children
        return cluster.Quantity(value, unit, span)

    def unit(self, span: Span, children: list[Any]) -> Name:
        what, per = children
        return Name(f"{what.text}/{per.text}" if per else what.text, span)
