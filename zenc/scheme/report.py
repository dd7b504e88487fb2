"""The problems of one scheme, gathered so that its author sees all of them at once; and how choices are named."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from zenc.errors import Diagnostic, SchemeError, Span, raise_if_any

MOST_LISTED = 40
MOST_COMPARED = 200
"""Names that one message gives, and that a slip is compared with: a text may have thousands of both, and of slips."""


@dataclass
class Report:
    """Collects diagnostics; ``close`` raises if one of them is an error."""

    found: list[Diagnostic] = field(default_factory=list)

    def error(
        self, id: str, message: str, span: Span | None, *, notes: tuple[str, ...] = (), help: str | None = None
    ) -> None:
        self.found.append(Diagnostic(id, message, span, notes, help))

    def warn(self, id: str, message: str, span: Span | None, *, help: str | None = None) -> None:
        self.found.append(Diagnostic(id, message, span, help=help, severity="warning"))

    @property
    def failed(self) -> bool:
        """Whether there is an error so far."""
        return any(diagnostic.severity == "error" for diagnostic in self.found)

    def close(self) -> tuple[Diagnostic, ...]:
        """The warnings, in the order of the text.

        Raises:
            SchemeError: with everything that was found, if there is an error.
        """
        found = tuple(dict.fromkeys(sorted(self.found, key=_place)))
        raise_if_any(SchemeError, found)
        return found


def _place(diagnostic: Diagnostic) -> tuple[str, int]:
    return (diagnostic.span.source.name, diagnostic.span.start) if diagnostic.span else ("", -1)


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


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """`` (did you mean 'A'?)`` for the closest of ``choices``; empty where none is close."""
    close = closest(name, choices)
    return f" (did you mean '{close}'?)" if close else ""


def closest(name: str, choices: Iterable[str]) -> str | None:
    """The one of ``choices`` that ``name`` is most likely a slip of; None where none is close."""
    by_folded = {choice.lower(): choice for choice in itertools.islice(choices, MOST_COMPARED)}
    close = difflib.get_close_matches(name.lower(), by_folded, n=1)
    return by_folded[close[0]] if close else None
