"""Builder of topology syntax: parser steps to ``TopologySyntax``; the other nodes are in ``tree_builder``."""

from __future__ import annotations

from typing import Any

from zenc.errors import Diagnostic, Source, Span
from zenc.language import topology_syntax
from zenc.language.lexer import Token
from zenc.language.rules import Rules, node, present
from zenc.language.syntax import Name


class ClusterRules(Rules):
    """The rules of topologies: methods by the names of nodes, as ``Rules`` has it."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.declaring_words: list[Token] = []
        """Names that are words of topologies, wherever they stand."""

    def topology(
        self, span: Span, name: Name, parameters: Any, doc: str | None, *body: topology_syntax.Declaration
    ) -> topology_syntax.TopologySyntax:
        for token in self.declaring_words:
            place = self._token_span(token)
            if span.start <= place.start < span.end:
                message = f"'{token.text}' is a word of topologies, and can't be a name in one"
                self.problems.append(Diagnostic("syntax", message, place))
        return topology_syntax.TopologySyntax(name, parameters or (), doc, body, span=span)

    def declarations(self, span: Span, *body: topology_syntax.Declaration) -> topology_syntax.Declarations:
        return body

    def like(self, span: Span, what: Name, settings: Any) -> topology_syntax.Like:
        return topology_syntax.Like(what, False, settings or (), span=span)

    def like_file(self, span: Span, *items: Any) -> topology_syntax.Like:
        *paths, settings = items
        first, *more = [Name(path.text[1:-1], span=self._token_span(path)) for path in paths]
        return topology_syntax.Like(first, True, settings or (), tuple(more), span=span)

    def settings(self, span: Span, *items: topology_syntax.Setting | None) -> tuple[topology_syntax.Setting, ...]:
        return present(items)

    def setting(self, span: Span, name: Name | None, value: Any) -> topology_syntax.Setting:
        return topology_syntax.Setting(value, name, span=span)

    def levels(self, span: Span, *levels: topology_syntax.LevelOf) -> topology_syntax.Levels:
        return topology_syntax.Levels(levels, span=span)

    level = node(topology_syntax.LevelOf)
    switch = node(topology_syntax.SwitchOf)
    memory = node(topology_syntax.MemoryOf)
    quantity = node(topology_syntax.Quantity)

    def link(self, span: Span, source: Any, sign: Token, target: Any, *amounts: Any) -> topology_syntax.LinkOf:
        return topology_syntax.LinkOf(source, target, sign.text == "->", *amounts, span=span)

    def unlink(self, span: Span, source: Any, sign: Token, target: Any) -> topology_syntax.Unlink:
        return topology_syntax.Unlink(source, target, sign.text == "->", span=span)

    def place(self, span: Span, name: Name, *indices: Any) -> topology_syntax.PlaceSyntax:
        return topology_syntax.PlaceSyntax(name, present(indices), span=span)

    def for_each(self, span: Span, variable: Name, *rest: Any) -> topology_syntax.ForEach:
        return topology_syntax.ForEach(variable.text, *rest, span=span)

    def when(self, span: Span, condition: Any, then: Any, otherwise: Any) -> topology_syntax.When:
        if isinstance(otherwise, topology_syntax.When):
            otherwise = (otherwise,)
        return topology_syntax.When(condition, then, otherwise or (), span=span)

    def unit(self, span: Span, what: Token, per: Token | None) -> Name:
        return Name(f"{what.text}/{per.text}" if per else what.text, span=span)
