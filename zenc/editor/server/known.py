"""A text in the server: its present contents, its diagnostics, and the names of its last version that parsed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from zenc.editor.server.symbols import Symbol, symbol_at, symbols_of
from zenc.errors import Diagnostic, SchemeError, Span, ZencError
from zenc.language.files import SourceFiles, load_text
from zenc.language.lexer import tables
from zenc.scheme.collector import Collector
from zenc.scheme.communication import schedules_of
from zenc.scheme.compressors import check_compressors
from zenc.scheme.resolve import resolve_any
from zenc.strategy.resolve import resolve_strategy
from zenc.topology.load import resolve_topology

_WORD = re.compile(r"[A-Za-z_]\w*")
_IMPORT = re.compile(r'\bimport\s+"([^"\n]*)"')
_NEEDS_VALUES = ("missing-parameter",)
"""Diagnostics that are no mistake of the text: values come with the command line."""


@dataclass
class Document:
    """A document; ``program`` and ``symbols`` are those of the last text that parsed, by which names are found."""

    path: Path
    text: str = ""
    program: SourceFiles | None = None
    symbols: list[Symbol] = field(default_factory=list)
    is_current: bool = False
    """True where program and symbols are of ``text``."""

    def read(self, text: str) -> None:
        """Take a new text; program and symbols stay those before if it does not parse."""
        self.text, self.is_current = text, False
        try:
            self.program = load_text(text, str(self.path), self.path)
        except ZencError:
            return
        self.symbols, self.is_current = symbols_of(self.program), True

    def word(self, offset: int) -> str:
        """Return the word at ``offset``; empty without one."""
        found = (word for word in _WORD.finditer(self.text) if word.start() <= offset <= word.end())
        return next((word[0] for word in found), "")

    def symbol(self, offset: int) -> tuple[Symbol, Span] | None:
        """Return the symbol at ``offset``; by its word alone where the text does not parse now."""
        if self.program is None:
            return None
        if self.is_current:
            return symbol_at(self.symbols, self.program.main.source.name, offset)
        word = self.word(offset)
        return next(((symbol, symbol.declared) for symbol in self.symbols if symbol.name == word), None)

    def imported(self, offset: int) -> Path | None:
        """Return the file that the import at ``offset`` names, if it is there."""
        for statement in _IMPORT.finditer(self.text):
            if statement.start() <= offset <= statement.end() and self.program:
                for file in self.program.files:
                    place = Path(file.source.path or file.source.name)
                    if place.name == Path(statement[1]).name:
                        return place
        return None


def findings(text: str, path: Path, prove: bool) -> list[Diagnostic]:
    """Return all diagnostics of ``text``, which is to lie at ``path``; with ``prove`` also those of the proof.

    For a text that does not parse these are its syntax errors. Each scheme and topology is checked by itself.
    """
    try:
        program = load_text(text, str(path), path)
    except ZencError as error:
        return list(error.diagnostics)
    of_the_file = Collector()
    schedules_of(program, of_the_file)
    check_compressors(program, of_the_file)
    looks = [partial(_of_scheme, program, scheme.name.text, prove) for scheme in program.main.schemes]
    looks += [partial(_of_strategy, program, strategy.name.text, prove) for strategy in program.main.strategies]
    looks += [partial(_of_topology, program, topology.name.text) for topology in program.main.topologies]
    found = of_the_file.found
    for look in looks:
        try:
            found += look()
        except ZencError as error:
            found += [each for each in error.diagnostics if each.id not in _NEEDS_VALUES]
    return list(dict.fromkeys(found))


def _of_scheme(program: SourceFiles, name: str, prove: bool) -> tuple[Diagnostic, ...]:
    if not prove:
        return resolve_any(program, name)[1]
    from zenc.pipeline import lower, resolve, verify
    from zenc.pipeline.request import Request

    given = Request(scheme=name)
    return verify(lower(resolve(program, given), given), given).warnings


def _of_strategy(program: SourceFiles, name: str, prove: bool) -> tuple[Diagnostic, ...]:
    strategy, warnings = resolve_strategy(program, name)
    if not prove:
        return warnings
    from zenc.pipeline.request import Request
    from zenc.strategy.pipeline import verify_strategy

    return verify_strategy(strategy, Request(scheme=name), warnings=warnings).warnings


def _of_topology(program: SourceFiles, name: str) -> tuple[Diagnostic, ...]:
    return tuple(resolve_topology(program, name)[1])


_Meanings = set[tuple[int, int]]
"""Pairs of offsets: a use of a name in a text, and its declaration."""


def renamed(document: Document, offset: int, name: str) -> list[Span]:
    """Return the places for ``name`` instead of the name at ``offset``, in the text and its imports.

    Raises SchemeError where ``name`` is not a valid name, the text does not parse, or the new one would mean something
    else.
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
    """Return the symbol at ``offset`` that can be renamed, and its place; raises SchemeError without one."""
    found = document.symbol(offset) if document.is_current else None
    if not document.is_current:
        raise _refused("the text has errors: mend them first")
    if found is None:
        raise _refused("what stands here has no other name: parameters, variables, schemes and schedules have")
    if any(span.source.path for span in found[0].uses):
        raise _refused(f"'{found[0].name}' comes with zenc, and keeps its name")
    return found


def _ensure_the_same(document: Document, places: list[Span], name: str) -> None:
    """Check that every name keeps its meaning, and that there are no new errors."""
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
    starts = sorted(span.start for span in places)
    more = len(name) - (places[0].end - places[0].start)
    for start in reversed(starts):
        text = text[:start] + name + text[start + len(name) - more :]
    return text, lambda offset: offset + more * sum(start < offset for start in starts)


def _meanings(symbols: list[Symbol], source: str, moved: Callable[[int], int]) -> _Meanings:
    own = [symbol for symbol in symbols if symbol.declared.source.name == source]
    return {(moved(span.start), moved(symbol.declared.start)) for symbol in own for span in symbol.uses}


def _refused(message: str) -> SchemeError:
    return SchemeError(Diagnostic("wrong-value", message))
