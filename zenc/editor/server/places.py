"""Places in a text as editors count them: lines, and UTF-16 units within a line."""

from __future__ import annotations

from pathlib import Path

from lsprotocol import types

from zenc.errors import Span


def position_at(text: str, offset: int) -> types.Position:
    """The line and column of ``offset``, which counts characters from the start of the text."""
    start = text.rfind("\n", 0, offset) + 1
    return types.Position(text.count("\n", 0, start), _units(text[start:offset]))


def offset_at(text: str, position: types.Position) -> int:
    """The offset of ``position``, or the end of its line, or of the text, where it lies beyond these."""
    start = 0
    for _ in range(position.line):
        end = text.find("\n", start)
        if end < 0:
            return len(text)
        start = end + 1
    line = text[start:].partition("\n")[0]
    units = 0
    for place, character in enumerate(line):
        if units >= position.character:
            return start + place
        units += _units(character)
    return start + len(line)


def range_of(span: Span) -> types.Range:
    """The range of ``span`` in its own text."""
    text = span.source.text
    return types.Range(position_at(text, span.start), position_at(text, max(span.end, span.start)))


def uri_of(span: Span) -> str:
    """The file of ``span``, as editors name it."""
    return Path(span.source.path or span.source.name).resolve().as_uri()


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
