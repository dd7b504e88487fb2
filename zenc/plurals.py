"""Numbers in English."""

from __future__ import annotations


def count(number: int, what: str, many: str = "") -> str:
    """``1 step``, ``12 steps``; ``many`` is the plural where it is no ``s`` behind: ``1 entry``, ``2 entries``."""
    return f"{number:,} {what if number == 1 else many or what + 's'}"
