"""The collector of a scheme's diagnostics, raised together; the wording of choices; and what a text is about."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from zenc.common.wording import did_you_mean
from zenc.errors import Diagnostic, SchemeError, Span, ZencError, raise_if_any
from zenc.language.files import SourceFiles
from zenc.language.syntax import AveragingSyntax, File, SchemeSyntax, StrategySyntax
from zenc.language.terms import Parameter
from zenc.language.topology_syntax import TopologySyntax

MOST_LISTED = 40
"""Most names in one message: a text may have thousands."""


@dataclass
class Collector:
    """A collector of diagnostics; ``close`` raises if one of them is an error."""

    found: list[Diagnostic] = field(default_factory=list)

    def error(
        self, id: str, message: str, span: Span | None, *, notes: tuple[str, ...] = (), help: str | None = None
    ) -> None:
        """Take an error; ``id`` is one of ``zenc.common.diagnostics``."""
        self.found.append(Diagnostic(id, message, span, notes, help))

    def warn(self, id: str, message: str, span: Span | None, *, help: str | None = None) -> None:
        """Take a warning; it does not stop the compilation."""
        self.found.append(Diagnostic(id, message, span, help=help, severity="warning"))

    def twins(self, what: str, named: Iterable[tuple[str, Span | None]]) -> None:
        """Report the names that occur again, each with its place; ``what`` is the word for the thing that they name."""
        first: dict[str, Span | None] = {}
        for name, span in named:
            if name in first:
                notes = (f"the other one: {first[name]}",)
                self.error("duplicate-name", f"there is another {what} '{name}'", span, notes=notes)
            first.setdefault(name, span)

    def unused(self, parameters: Iterable[Parameter], used: Container[str]) -> None:
        """Warn of those of ``parameters`` that are not among the ``used`` names."""
        for parameter in parameters:
            if parameter.name.text not in used:
                message = f"parameter '{parameter.name.text}' is used nowhere"
                self.warn("unused-name", message, parameter.name.span)

    @property
    def failed(self) -> bool:
        """Return whether there is an error so far."""
        return any(diagnostic.severity == "error" for diagnostic in self.found)

    def close(self) -> tuple[Diagnostic, ...]:
        """Return the warnings, in the order of the text.

        Raises:
            SchemeError: with all diagnostics, if there is an error.
        """

        def place(of: Diagnostic) -> tuple[str, int]:
            return (of.span.source.name, of.span.start) if of.span else ("", -1)

        found = tuple(dict.fromkeys(sorted(self.found, key=place)))
        raise_if_any(SchemeError, found)
        return found


def unknown(kind: str, name: str, choices: Iterable[str], also: str = "") -> str:
    """Return ``unknown KIND 'NAME'; one of A, B (did you mean 'A'?)``; ``also`` is a choice that is no name."""
    known = list(choices)
    return f"unknown {kind} '{name}'; one of {listed(known, also)}{did_you_mean(name, known)}"


def listed(names: Iterable[str], also: str = "") -> str:
    """Return ``A, B``; beyond ``MOST_LISTED`` names, the first ones and the number of the others."""
    known = list(names)
    shown = ", ".join(known[:MOST_LISTED])
    more = f" and {len(known) - MOST_LISTED} more" if len(known) > MOST_LISTED else ""
    return shown + more + (f", or {also}" if also else "")


T = TypeVar("T", SchemeSyntax, StrategySyntax, AveragingSyntax, TopologySyntax)


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of declarations, ``of`` which a file has some: in words one and ``several``, and the ``error`` about them.

    Ids of errors: ``ambiguous`` of several, ``absent`` of none, and ``unknown`` of none by a name, else
    ``absent``. ``chosen``: how {0}, in a file {1}, is named to zenc. ``example``: how one is written.
    """

    ambiguous: str
    absent: str
    word: str
    several: str
    of: Callable[[File], Sequence[T]]
    chosen: str
    example: str
    unknown: str = ""
    error: type[ZencError] = SchemeError

    def known(self, program: SourceFiles) -> dict[str, T]:
        """Return the declarations of all files of ``program`` by name; those of the main file count."""
        return {each.name.text: each for file in reversed(program.files) for each in self.of(file)}

    def missing(self, program: SourceFiles, name: str | None, has: tuple[str, ...] = ()) -> ZencError:
        """Return the error of a program without one called ``name``, or any; ``has`` names others that are there."""
        main: File = program.main
        known = self.known(program)
        message = f"{main.source.name} has no {self.word}"
        if name is None and self.unknown:
            others = (*main.schemes, *main.schedules, *main.compressors, *main.imports)
            place = next((each.span for each in others), None)
            return self.error(Diagnostic(self.absent, message, place, has, self.example))
        called = f" '{name}'{did_you_mean(name, known)}" if name is not None else ""
        notes = (f"{self.several}: {', '.join(known)}",) if known else ()
        id, help = (self.unknown, None) if self.unknown else (self.absent, self.example)
        return self.error(Diagnostic(id, f"{message}{called}", notes=notes, help=help))


def pick(kind: Kind[T], program: SourceFiles, name: str | None = None) -> T | None:
    """Return the declaration called ``name``, or the only one of the main file, or None.

    Raises the error of ``kind`` where there are several.
    """
    here, known, file = kind.of(program.main), kind.known(program), program.main.source.name
    if name is not None or not here:
        return known.get(name) if name is not None else None
    if len({each.name.text for each in here}) == 1:
        return here[0]
    notes = (f"{kind.several}: {', '.join(known)}",)
    help = f"choose one by its name: {kind.chosen.format(here[0].name.text, file)}"
    raise kind.error(Diagnostic(kind.ambiguous, f"{file} has several {kind.several}", here[1].name.span, notes, help))


def take(kind: Kind[T], program: SourceFiles, name: str | None = None) -> T:
    """Return the declaration that ``pick`` does; raises the error of ``kind`` for a missing one, too."""
    found = pick(kind, program, name)
    if found is None:
        raise kind.missing(program, name)
    return found
