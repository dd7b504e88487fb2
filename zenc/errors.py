"""Errors as data: spans, diagnostics, and one exception class a stage.

    Source     = a named text
    Span       = Source x [start, end)                      # offsets in characters
    Diagnostic = id x severity x message x Span? x notes x help?
    ZencError  = Diagnostic+                                 # a stage collects all of its own, then raises once

Ids are stable and explained in the directory ``diagnostics``. Everything here can be pickled, since ranks report
errors to each other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["error", "warning"]

_MOVING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, lines: bool = False) -> str:
    """Return ``text`` with a question mark for all that moves a cursor, turns text around, or is half a character.

    Ends of lines and tabs are replaced, too, unless it has ``lines``.
    """
    cleaned = _MOVING.sub("?", text)
    return cleaned if lines else cleaned.replace("\n", "?").replace("\t", "?")


@dataclass(frozen=True, slots=True)
class Source:
    """A text that a user wrote, and the name by which plans call it (mostly a path).

    ``path`` is its full path, if its name does not say so: a shipped file's name is the same everywhere.
    """

    name: str
    text: str = field(repr=False)
    path: str | None = field(default=None, compare=False, repr=False)

    @property
    def shown(self) -> str:
        """The name in diagnostics, which an editor opens: ``path`` from the current directory, if it lies there."""
        if self.path is None:
            return self.name
        inside = os.path.relpath(self.path)
        return self.path if inside.startswith(os.pardir) else inside

    def line_of(self, offset: int) -> int:
        """Return the 1-based line that holds the character at ``offset``."""
        return self.text.count("\n", 0, offset) + 1

    def line_at(self, offset: int) -> str:
        """Return the text of the line that holds the character at ``offset``, without its end."""
        start, end = self.text.rfind("\n", 0, offset) + 1, self.text.find("\n", offset)
        return self.text[start : end if end >= 0 else None].rstrip("\r")


@dataclass(frozen=True, slots=True)
class Span:
    """The characters ``[start, end)`` of a source."""

    source: Source
    start: int
    end: int

    @property
    def line(self) -> int:
        """The line of the first character, from 1."""
        return self.source.line_of(self.start)

    @property
    def column(self) -> int:
        """The column of the first character, from 1."""
        return self.start - self.source.text.rfind("\n", 0, self.start)

    @property
    def name(self) -> str:
        """``FILE:LINE:COLUMN`` as a plan says it, the same in every installation."""
        return f"{self.source.name}:{self.line}:{self.column}"

    def __str__(self) -> str:
        """Return ``FILE:LINE:COLUMN`` as a user finds it."""
        return f"{self.source.shown}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Spanned:
    """Base of nodes with a place in a text. Two nodes are equal that say the same at different places."""

    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A finding: the error in words, its place, and help."""

    id: str
    message: str
    span: Span | None = None
    notes: tuple[str, ...] = ()
    help: str | None = None
    severity: Severity = "error"

    def headline(self) -> str:
        """Return ``FILE:LINE:COLUMN: error[ID]: message``."""
        place = f"{self.span}: " if self.span else ""
        return printable(f"{place}{self.severity}[{self.id}]: {self.message}", lines=True)

    def render(self) -> str:
        """Return the headline, then the source line with a caret, notes and help."""
        lines = [self.headline()]
        if self.span:
            lines += excerpt(self.span)
        lines += [f"  note: {note}" for note in self.notes]
        if self.help:
            lines.append(f"  help: {self.help}")
        return printable("\n".join(lines), lines=True)

    def to_json(self) -> dict[str, object]:
        """Return the finding for programs; places are 1-based."""
        place: dict[str, object] | None = None
        if self.span:
            place = {"file": self.span.source.shown, "line": self.span.line, "column": self.span.column}
        return {
            "id": self.id,
            "severity": self.severity,
            "message": self.message,
            "place": place,
            "notes": list(self.notes),
            "help": self.help,
        }


WIDEST_EXCERPT = 160


def excerpt(span: Span) -> list[str]:
    """Return the line of ``span`` with a caret under it; empty where the source has no text."""
    text = span.source.line_at(span.start)
    if not text.strip() or len(text) > WIDEST_EXCERPT:
        return []
    shown = printable(text.replace("\t", " "))
    column = span.column
    width = max(1, min(span.end - span.start, len(text) - column + 1))
    gutter = f"{span.line:>5} | "
    return [gutter + shown, " " * (len(gutter) - 2) + "| " + " " * (column - 1) + "^" * width]


class ZencError(Exception):
    """The root of all errors that zenc raises on purpose; ``diagnostics`` have message, place and help."""

    shown_by_rank_0 = False
    """True where rank 0 raises the same error, and shows all of it; then this one is a line for each diagnostic."""

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]) -> None:
        found = (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        super().__init__(found)
        self.diagnostics: tuple[Diagnostic, ...] = found

    def __str__(self) -> str:
        if self.shown_by_rank_0:
            return "\n".join(f"{diagnostic.headline()} (rank 0 says more)" for diagnostic in self.diagnostics)
        return "\n".join(diagnostic.render() for diagnostic in self.diagnostics)


class SchemeSyntaxError(ZencError):
    """The text is not in the language. The author's to mend, at the place named."""


class SchemeError(ZencError):
    """The text reads, but says something that has no meaning: an unknown name, a wrong type, a missing key."""


class TopologyError(ZencError):
    """A description of a cluster that can't be one: an island, a link without bandwidth, a file of another kind."""


class PlanError(ZencError):
    """A plan of another program that can't be read or judged: damaged, too large, or with unknown operations."""


class VerificationError(ZencError):
    """The schedule does not sum every contribution exactly once everywhere, or can't be run at all."""


class CostError(ZencError):
    """A cost that is asked for with an impossible profile, or with numbers that are wrong."""


class DrawingError(ZencError):
    """A drawing that can't be made: too much for one picture, or nothing at all."""


class BuildError(ZencError):
    """The generated code could not be compiled or loaded: mostly a missing or broken compiler."""


class CacheError(ZencError):
    """The cache directory can't be used: not writable, full, or open to others."""


class ArtifactError(ZencError):
    """A saved artifact is damaged, of another version, or made for another group size."""


class TensorError(ZencError):
    """A tensor that the collective can't take: dtype, device, layout or size."""


class SynchronisationError(ZencError):
    """Ranks disagree, a peer is gone, or a wait passed its deadline."""


class InternalError(ZencError):
    """A bug in zenc: please report it with its text."""


MOST_RAISED = 20
"""Most diagnostics in one error: nobody reads a thousand, and each costs time to show."""


def first_line(error: BaseException) -> str:
    """Return the first line of ``error``, short enough for a note; its class where it says nothing."""
    return next(iter(str(error).splitlines()), "")[:200] or type(error).__name__


def raise_if_any(error: type[ZencError], found: Sequence[Diagnostic]) -> None:
    """Raise ``error`` with ``found`` if one of them is an error; warnings alone pass.

    Beyond ``MOST_RAISED`` the first errors are raised and nothing else.
    """
    errors = [diagnostic for diagnostic in found if diagnostic.severity == "error"]
    if errors:
        raise error(found if len(found) <= MOST_RAISED else errors[:MOST_RAISED])
