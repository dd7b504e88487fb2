"""Diagnostics of an open text: quick ones while it is typed, and the proof when it is saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from zenc.errors import Diagnostic, ZencError

if TYPE_CHECKING:
    from zenc.language.files import SourceFiles


def findings(text: str, path: Path, prove: bool) -> list[Diagnostic]:
    """All diagnostics of ``text``, which is to lie at ``path``; under ``prove`` also those of the proof, as zenc check.

    Of a text that does not parse these are its syntax errors. Each scheme and topology is looked at by itself.
    """
    from zenc.language.files import load_text

    try:
        program = load_text(text, str(path), path)
    except ZencError as error:
        return list(error.diagnostics)
    found = _of_schedules(program)
    found += [each for scheme in program.main.schemes for each in _of_scheme(program, scheme.name.text, prove)]
    found += [each for topology in program.main.topologies for each in _of_topology(program, topology.name.text)]
    return list(dict.fromkeys(found))


def _of_schedules(program: SourceFiles) -> list[Diagnostic]:
    from zenc.scheme.collector import Collector
    from zenc.scheme.communication import schedules_of

    report = Collector()
    schedules_of(program, report)
    return report.found


def _of_scheme(program: SourceFiles, name: str, prove: bool) -> list[Diagnostic]:
    try:
        if prove:
            from zenc.pipeline import Request, lower, resolve, verify

            given = Request(scheme=name)
            return list(verify(lower(resolve(program, given), given), given).warnings)
        from zenc.scheme.resolve import resolve_any

        return list(resolve_any(program, name)[1])
    except ZencError as error:
        return [found for found in error.diagnostics if found.id not in _NEEDS_VALUES]


def _of_topology(program: SourceFiles, name: str) -> list[Diagnostic]:
    from zenc.topology.load import resolve_topology

    try:
        return list(resolve_topology(program, name)[1])
    except ZencError as error:
        return [found for found in error.diagnostics if found.id not in _NEEDS_VALUES]


_NEEDS_VALUES = ("missing-parameter",)
"""Diagnostics that are no mistake of the text: values come with the command line."""
