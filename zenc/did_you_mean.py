"""Slips of the pen: the known word that a misspelt one is nearest to."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

MOST_COMPARED = 200
"""Names that a slip is compared with: a text may have thousands of both."""


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """`` (did you mean 'A'?)`` for the closest of ``choices``; empty where none is close."""
    close = closest(name, choices)
    return f" (did you mean '{close}'?)" if close else ""


def closest(name: str, choices: Iterable[str]) -> str | None:
    """The one of ``choices`` that ``name`` is most likely a slip of; None where none is close."""
    import difflib

    by_folded = {choice.lower(): choice for choice in itertools.islice(choices, MOST_COMPARED)}
    close = difflib.get_close_matches(name.lower(), by_folded, n=1)
    return by_folded[close[0]] if close else None
