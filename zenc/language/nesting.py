"""How deep a tree nests. Every pass walks trees by recursion, so none may be deep enough to overrun Python's stack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from zenc.errors import Diagnostic, Source, Span

DEEPEST = 100


def too_deep(tree: object) -> list[Diagnostic]:
    """A diagnostic at the first node beyond ``DEEPEST`` levels; none where the tree is shallow."""
    pending: list[tuple[Any, int]] = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        if depth > DEEPEST:
            help = f"expressions and blocks may nest {DEEPEST} levels; name a part of it with let"
            return [Diagnostic("nesting", "this nests too deep to be read", node.span, help=help)]
        pending += [(child, depth + 1) for child in _children(node)]
    return []


def _children(node: object) -> Iterator[object]:
    if isinstance(node, tuple):
        for item in node:
            yield from _children(item) if isinstance(item, tuple) else [item]
    elif is_dataclass(node) and not isinstance(node, Source | Span):
        for field in fields(node):
            value = getattr(node, field.name)
            if isinstance(value, tuple):
                yield from _children(value)
            elif is_dataclass(value) and not isinstance(value, Source | Span):
                yield value
