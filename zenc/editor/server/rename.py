"""A new name for what a text declares: where it is to be written, or why it can't be."""

from __future__ import annotations

import re
from collections.abc import Callable

from zenc.editor.server.known import Document, findings
from zenc.editor.server.symbols import Symbol, symbols_of
from zenc.errors import Diagnostic, SchemeError, Span, ZencError
from zenc.language.files import load_text
from zenc.language.parse_tables import tables

_Meanings = set[tuple[int, int]]
"""Pairs of offsets: a use of a name in a text, and its declaration."""


def renamed(document: Document, offset: int, name: str) -> list[Span]:
    """The places at which ``name`` is to stand instead of what stands at ``offset``, in the text and its imports.

    Raises SchemeError where ``name`` is none, the text does not parse, or the new one would say something else.
    """
    found = nameable(document, offset)
    if not re.fullmatch(tables().terminals["NAME"], name):
        raise _refused(f"'{name}' can't be a name: letters, digits and _, no digit first, no word of the language")
    symbol, _ = found
    own = [span for span in symbol.uses if span.source.name == str(document.path)]
    if len(own) == len(symbol.uses):
        _ensure_the_same(document, own, name)
    elif any(other.name == name and other.kind == symbol.kind for other in document.symbols):
        raise _refused(f"'{name}' has a meaning here already")
    return symbol.uses


def nameable(document: Document, offset: int) -> tuple[Symbol, Span]:
    """The symbol at ``offset`` that can be renamed, and its place; raises SchemeError where there is none."""
    found = document.symbol(offset) if document.is_current else None
    if not document.is_current:
        raise _refused("the text has errors: mend them first")
    if found is None:
        raise _refused("what stands here has no other name: parameters, variables, schemes and schedules have")
    if any(span.source.path for span in found[0].uses):
        raise _refused(f"'{found[0].name}' comes with zenc, and keeps its name")
    return found


def _ensure_the_same(document: Document, places: list[Span], name: str) -> None:
    """Every name must mean after what it meant before, and nothing may be wrong that was right."""
    text, moved = _replaced(document.text, places, name)
    source = str(document.path)
    try:
        after = _meanings(symbols_of(load_text(text, source, document.path)), source, lambda offset: offset)
    except ZencError as error:
        raise _refused(f"'{name}' can't be read there: {error.diagnostics[0].message}") from error
    wrong = [found for found in findings(text, document.path, prove=False) if found.severity == "error"]
    known = {(found.id, found.message) for found in findings(document.text, document.path, prove=False)}
    new = [found.message for found in wrong if (found.id, found.message) not in known]
    if new or after != _meanings(document.symbols, source, moved):
        raise _refused(new[0] if new else f"'{name}' has a meaning here already")


def _replaced(text: str, places: list[Span], name: str) -> tuple[str, Callable[[int], int]]:
    """``text`` with ``name`` at all ``places``, and where an offset of it is found then."""
    starts = sorted(span.start for span in places)
    more = len(name) - (places[0].end - places[0].start)
    for start in reversed(starts):
        text = text[:start] + name + text[start + len(name) - more :]
    return text, lambda offset: offset + more * sum(start < offset for start in starts)


def _meanings(symbols: list[Symbol], source: str, moved: Callable[[int], int]) -> _Meanings:
    own = [symbol for symbol in symbols if symbol.declared.source.name == source]
    return {
        (moved(span.start), moved(symbol.declared.start))
        for symbol in own
        for span in symbol.uses
        if span.source.name == source
    }


def _refused(message: str) -> SchemeError:
    return SchemeError(Diagnostic("wrong-value", message))
