"""What all rules share that turn lark's tree into ours: where a node stands in the text, and what is wrong with it."""

from __future__ import annotations

from typing import Any

from lark import Token
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from zenc.errors import Diagnostic, Source, Span


class Rules(Transformer_NonRecursive[Token, Any]):
    """Rules for one source; ``problems`` holds what they found wrong."""

    def __init__(self, source: Source) -> None:
        super().__init__(visit_tokens=True)
        self.source = source
        self.problems: list[Diagnostic] = []

    def _span(self, meta: Meta) -> Span:
        return Span(self.source, 0, 0) if meta.empty else Span(self.source, meta.start_pos, meta.end_pos)

    def _token_span(self, token: Token) -> Span:
        start = token.start_pos or 0
        return Span(self.source, start, start + len(token))
