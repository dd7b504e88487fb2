"""Text in a drawing: how wide it is, about, and where to break it."""

from __future__ import annotations

WIDE = 0.56
"""The mean width of a letter over its size, in the fonts that browsers take for ``sans-serif``."""


def width_of(words: str, size: float) -> float:
    """The width of ``words`` in pixels, about."""
    return WIDE * size * len(words)


def wrapped(words: str, size: float, room: float, most: int = 3) -> list[str]:
    """``words`` in lines of at most ``room`` pixels; what is left after ``most`` lines is cut off."""
    columns = max(12, int(room / (WIDE * size)))
    lines: list[str] = []
    for word in words.split():
        if lines and len(lines[-1]) + 1 + len(word) <= columns:
            lines[-1] += f" {word}"
        else:
            lines.append(cut(word, columns))
    if len(lines) > most:
        lines = [*lines[: most - 1], cut(" ".join(lines[most - 1 :]), columns)]
    return lines


def cut(words: str, columns: int) -> str:
    """``words``, or as much as goes into ``columns`` letters."""
    return words if len(words) <= columns else f"{words[: columns - 1]}\N{HORIZONTAL ELLIPSIS}"


def span(first: int, last: int) -> str:
    """``3``, or ``0-3``."""
    return str(first) if first == last else f"{first}\N{EN DASH}{last}"
