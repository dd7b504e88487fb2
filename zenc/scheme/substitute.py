"""Substitution: values put in for the names of a schedule's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from zenc.language.schedule import Block, Expression, Variable, rebuilt


@dataclass(frozen=True)
class Substitution:
    """Replaces variables by expressions. Nothing is captured: no statement may declare a name that is known."""

    values: Mapping[str, Expression]

    def block(self, block: Block) -> Block:
        """``block`` with the values in place of the names."""
        return tuple(rebuilt(statement, self._node) for statement in block)

    def _node(self, node: Any) -> Any:
        return self.expression(node) if isinstance(node, Expression) else rebuilt(node, self._node)

    def expression(self, e: Expression) -> Expression:
        """``e`` with the values in place of the names."""
        if isinstance(e, Variable):
            return replace(self.values[e.name], span=e.span) if e.name in self.values else e
        return rebuilt(e, self.expression)
