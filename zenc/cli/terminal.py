"""Standard output and standard error of the program: no text of a user moves the cursor."""

from __future__ import annotations

import re
from typing import TextIO, cast

from zenc.errors import printable

_OWN = re.compile("(\x1b\\[[0-9;]*m|\x1b]8;[^\x1b\x07]*;[^\x1b\x07]*\x1b\\\\)")
"""Colours and links, which rich writes to terminals."""


class _TerminalText:
    """A stream of text that is cleaned when it is written, and otherwise acts as the stream behind it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write ``text`` without parts that move a cursor; return its length."""
        if not isinstance(text, str):  # click tries whether a stream takes bytes
            return self._stream.write(text)
        parts = _OWN.split(text) if self._stream.isatty() else [text]
        cleaned = [part if place % 2 else printable(part, lines=True) for place, part in enumerate(parts)]
        self._stream.write("".join(cleaned))
        return len(text)


def as_terminal_text(stream: TextIO) -> TextIO:
    """Return ``stream``, through which no text of a user reaches a terminal raw."""
    return cast(TextIO, _TerminalText(stream))
