"""A text as the server knows it: what it says now, and the names of it when it last parsed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from zenc.editor.server.symbols import Symbol, symbol_at, symbols_of
from zenc.errors import Span, ZencError
from zenc.language.files import SourceFiles, load_text

_WORD = re.compile(r"[A-Za-z_]\w*")
_IMPORT = re.compile(r'\bimport\s+"([^"\n]*)"')


@dataclass
class Document:
    """``program`` and ``symbols`` are those of the last text that parsed, at whose places names are looked for."""

    path: Path
    text: str = ""
    program: SourceFiles | None = None
    symbols: list[Symbol] = field(default_factory=list)
    is_current: bool = False
    """Whether they are of ``text``."""

    def read(self, text: str) -> None:
        """Take a new text; program and symbols stay those before if it does not parse."""
        self.text, self.is_current = text, False
        try:
            self.program = load_text(text, str(self.path), self.path)
        except ZencError:
            return
        self.symbols, self.is_current = symbols_of(self.program), True

    def word(self, offset: int) -> str:
        """The word at ``offset``; empty where there is none."""
        found = (word for word in _WORD.finditer(self.text) if word.start() <= offset <= word.end())
        return next((word[0] for word in found), "")

    def symbol(self, offset: int) -> tuple[Symbol, Span] | None:
        """The symbol at ``offset``; by its word alone where the text does not parse now."""
        if self.program is None:
            return None
        if self.is_current:
            return symbol_at(self.symbols, self.program.main.source.name, offset)
        word = self.word(offset)
        return next(((symbol, symbol.declared) for symbol in self.symbols if symbol.name == word), None)

    def imported(self, offset: int) -> Path | None:
        """The file that the import at ``offset`` names, if it is there."""
        for statement in _IMPORT.finditer(self.text):
            if statement.start() <= offset <= statement.end() and self.program:
                for file in self.program.files:
                    place = Path(file.source.path or file.source.name)
                    if place.name == Path(statement[1]).name:
                        return place
        return None
