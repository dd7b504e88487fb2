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


MOST_OFFERED = 4


def dotted_like(name: str, choices: Iterable[str]) -> str:
    """``did you mean 'A' or 'B'?`` for dotted ``choices`` of which ``name`` is a part, or a slip; empty without any."""
    import difflib

    known = list(choices)
    parts = [each for each in known if f".{each}".endswith(f".{name}") or f"{each}.".startswith(f"{name}.")]
    longer = [each for each in known if f".{name}".endswith(f".{each}")]
    near = parts or longer or difflib.get_close_matches(name, known[:MOST_COMPARED], n=1)
    offered = " or ".join(f"'{each}'" for each in near[:MOST_OFFERED])
    more = f", or one of {len(near) - MOST_OFFERED} more" if len(near) > MOST_OFFERED else ""
    return f"did you mean {offered}{more}?" if near else ""
