"""Base of the tree builders: a stack of values with their spans, reduced rule by rule; problems as diagnostics.

A step is a token, or the number of a rule that takes what was read last as its symbols: a tree in postfix order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar

from zenc.errors import Diagnostic, Source, Span, Spanned
from zenc.language.lexer import Rule, Token, tables

Step: TypeAlias = Token | int
T = TypeVar("T")


def node(kind: type[Spanned]) -> Callable[..., Spanned]:
    """Return the method of a node whose items are the fields of ``kind``, in their order."""
    return lambda _rules, span, *items: kind(*items, span=span)


def present(items: Iterable[T | None]) -> tuple[T, ...]:
    """Return ``items`` without the optional ones that were left out."""
    return tuple(item for item in items if item is not None)


def only(_rules: Rules, _span: Span, item: Any) -> Any:
    """Return the only item of a node, as the node's method."""
    return item


def listed(_rules: Rules, _span: Span, *items: Any) -> tuple[Any, ...]:
    """Return the items of a node without those left out, as the node's method."""
    return present(items)


class Rules:
    """A builder's rules for one source; ``problems`` holds the errors found.

    The method with the name of a node takes its span, then its items; the one with that of a terminal takes a token.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Diagnostic] = []
        self._values: list[Any] = []
        """Nodes that no rule has taken yet."""
        self._places: list[tuple[int, int]] = []
        """Starts and ends of each of ``_values``, with the tokens that it does not keep."""

    def build(self, steps: list[Step]) -> Any:
        """Return the value of the rule that all steps lead to."""
        rules = tables().rules
        makers = {terminal: getattr(self, terminal, None) for terminal in tables().terminals}
        for step in steps:
            if isinstance(step, int):
                self._reduce(rules[step])
            else:
                make = makers.get(step.terminal)
                self._values.append(make(step) if make else step)
                self._places.append((step.start, step.end))
        return self._values[0]

    def _reduce(self, rule: Rule) -> None:
        values, places, rest = self._values, self._places, len(self._values) - rule.size
        place = (places[rest][0], places[-1][1]) if rule.size else (0, 0)
        made: Any = self._items(rule)
        if rule.node:
            made = getattr(self, rule.node)(Span(self.source, *place), *made)
        elif not rule.is_list:
            (made,) = made
        values[rest:] = [made]
        places[rest:] = [place]

    def _items(self, rule: Rule) -> list[Any]:
        items: list[Any] = []
        for item in rule.items:
            if item is None:
                items.append(None)
            elif isinstance(item, int):
                items.append(self._values[item])
            elif items:
                items += self._values[item[0]]
            else:  # nobody else has this list: so a long one is not copied for each item that it gets
                items = self._values[item[0]]
        return items

    def _token_span(self, token: Token) -> Span:
        return Span(self.source, token.start, token.end)
