"""lark's tree -> topologies, as data. One method a rule; the other rules are in ``build``."""

from __future__ import annotations

from typing import Any

from lark import Token
from lark.tree import Meta
from lark.visitors import v_args

from zenc.errors import Diagnostic, Source
from zenc.language import cluster
from zenc.language.rules import Rules
from zenc.language.syntax import Name


@v_args(meta=True)
class ClusterRules(Rules):
    """The rules of topologies."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.declaring_words: list[Token] = []
        """Names that are words of topologies, wherever they stand."""

    def topology(self, meta: Meta, children: list[Any]) -> cluster.Topology:
        name, parameters, doc, *body = children
        span = self._span(meta)
        for token in self.declaring_words:
            place = self._token_span(token)
            if span.start <= place.start < span.end:
                message = f"'{token}' is a word of topologies, and can't be a name in one"
                self.problems.append(Diagnostic("syntax", message, place))
        return cluster.Topology(name, parameters or (), doc, tuple(body), span)

    def declarations(self, meta: Meta, children: list[Any]) -> cluster.Declarations:
        return tuple(children)

    def like(self, meta: Meta, children: list[Any]) -> cluster.Like:
        what, settings = children
        return cluster.Like(what, False, settings or (), (), self._span(meta))

    def like_file(self, meta: Meta, children: list[Any]) -> cluster.Like:
        *paths, settings = children
        first, *more = [Name(str(path)[1:-1], self._token_span(path)) for path in paths]
        return cluster.Like(first, True, settings or (), tuple(more), self._span(meta))

    def settings(self, meta: Meta, children: list[Any]) -> tuple[cluster.Setting, ...]:
        return tuple(child for child in children if child is not None)

    def setting(self, meta: Meta, children: list[Any]) -> cluster.Setting:
        name, value = children
        return cluster.Setting(value, name, self._span(meta))

    def levels(self, meta: Meta, children: list[Any]) -> cluster.Levels:
        return cluster.Levels(tuple(children), self._span(meta))

    def level(self, meta: Meta, children: list[Any]) -> cluster.LevelOf:
        name, count = children
        return cluster.LevelOf(name, count, self._span(meta))

    def switch(self, meta: Meta, children: list[Any]) -> cluster.SwitchOf:
        return cluster.SwitchOf(children[0], self._span(meta))

    def link(self, meta: Meta, children: list[Any]) -> cluster.LinkOf:
        source, sign, target, bandwidth, latency = children
        return cluster.LinkOf(source, target, sign == "->", bandwidth, latency, self._span(meta))

    def unlink(self, meta: Meta, children: list[Any]) -> cluster.Unlink:
        source, sign, target = children
        return cluster.Unlink(source, target, sign == "->", self._span(meta))

    def memory(self, meta: Meta, children: list[Any]) -> cluster.MemoryOf:
        place, size = children
        return cluster.MemoryOf(place, size, self._span(meta))

    def place(self, meta: Meta, children: list[Any]) -> cluster.Place:
        name, *indices = children
        return cluster.Place(name, tuple(index for index in indices if index is not None), self._span(meta))

    def for_each(self, meta: Meta, children: list[Any]) -> cluster.ForEach:
        variable, first, last, body = children
        return cluster.ForEach(variable.text, first, last, body, self._span(meta))

    def when(self, meta: Meta, children: list[Any]) -> cluster.When:
        condition, then, otherwise = children
        if isinstance(otherwise, cluster.When):
            otherwise = (otherwise,)
        return cluster.When(condition, then, otherwise or (), self._span(meta))

    def quantity(self, meta: Meta, children: list[Any]) -> cluster.Quantity:
        value, unit = children
        return cluster.Quantity(value, unit, self._span(meta))

    def unit(self, meta: Meta, children: list[Any]) -> Name:
        what, per = children
        return Name(f"{what.text}/{per.text}" if per else what.text, self._span(meta))
