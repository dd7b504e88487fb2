"""The limit on nesting of a syntax tree: passes recurse, and no tree may overrun Python's stack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from zenc.errors import Diagnostic, Source, Span

DEEPEST = 100


def too_deep(tree: object) -> list[Diagnostic]:
    """A diagnostic at the first node beyond ``DEEPEST`` levels; none where the tree is shallow."""
    known = _Fields()
    pending: list[tuple[Any, int]] = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        if depth > DEEPEST:
            help = f"expressions and blocks may nest {DEEPEST} levels; name a part of it with let"
            return [Diagnostic("nesting", "this nests too deep to be read", node.span, help=help)]
        pending += [(child, depth + 1) for child in _children(node, known)]
    return []


class _Fields(dict[type, tuple[str, ...]]):
    """The names of the fields of a kind of node, and none for what is no node; each kind is looked at once."""

    def __missing__(self, kind: type) -> tuple[str, ...]:
        is_node = is_dataclass(kind) and not issubclass(kind, Source | Span)
        self[kind] = tuple(field.name for field in fields(kind)) if is_node else ()
        return self[kind]


def _children(node: object, known: _Fields) -> Iterator[object]:
    if isinstance(node, tuple):
        for item in node:
            yield from _children(item, known) if isinstance(item, tuple) else [item]
    for name in known[type(node)]:
        value = getattr(node, name)
        if isinstance(value, tuple):
            yield from _children(value, known)
        elif known[type(value)]:
            yield value
