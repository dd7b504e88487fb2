"""The collector of a scheme's diagnostics, raised together; and the wording of choices."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from zenc.errors import Diagnostic, SchemeError, Span, raise_if_any
from zenc.language.terms import Parameter
from zenc.wording import did_you_mean

MOST_LISTED = 40
"""Names that one message gives: a text may have thousands."""


@dataclass
class Collector:
    """Collects diagnostics; ``close`` raises if one of them is an error."""

    found: list[Diagnostic] = field(default_factory=list)

    def error(
        self, id: str, message: str, span: Span | None, *, notes: tuple[str, ...] = (), help: str | None = None
    ) -> None:
        """Take an error; ``id`` is one of ``zenc.diagnostics``."""
        self.found.append(Diagnostic(id, message, span, notes, help))

    def warn(self, id: str, message: str, span: Span | None, *, help: str | None = None) -> None:
        """Take a warning; it does not stop the compilation."""
        self.found.append(Diagnostic(id, message, span, help=help, severity="warning"))

    def twins(self, what: str, named: Iterable[tuple[str, Span | None]]) -> None:
        """Report the names that are there again, each with its place; ``what`` they name."""
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
        """Whether there is an error so far."""
        return any(diagnostic.severity == "error" for diagnostic in self.found)

    def close(self) -> tuple[Diagnostic, ...]:
        """The warnings, in the order of the text.

        Raises:
            SchemeError: with everything that was found, if there is an error.
        """

        def place(of: Diagnostic) -> tuple[str, int]:
            return (of.span.source.name, of.span.start) if of.span else ("", -1)

        found = tuple(dict.fromkeys(sorted(self.found, key=place)))
        raise_if_any(SchemeError, found)
        return found


def unknown(kind: str, name: str, choices: Iterable[str], also: str = "") -> str:
    """``unknown KIND 'NAME'; one of A, B (did you mean 'A'?)``; ``also`` is a choice that is no name."""
    known = list(choices)
    return f"unknown {kind} '{name}'; one of {listed(known, also)}{did_you_mean(name, known)}"


def listed(names: Iterable[str], also: str = "") -> str:
    """``A, B``; of more than ``MOST_LISTED`` the first, and how many more there are."""
    known = list(names)
    shown = ", ".join(known[:MOST_LISTED])
    more = f" and {len(known) - MOST_LISTED} more" if len(known) > MOST_LISTED else ""
    return shown + more + (f", or {also}" if also else "")
