"""Bytes and seconds in words, to four digits."""

from __future__ import annotations


def size_text(count: float) -> str:
    """``9999 B``, ``12.3 kB``, ``4.5 GB``: by thousands, as bandwidths are."""
    if count < 10_000:
        return f"{round(count)} B"
    for unit, scale in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if count < 1000 * scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count / 1e12:.4g} TB"


def seconds_text(seconds: float) -> str:
    """``12.5 us``, ``3 ms``, ``1.5 s``."""
    for unit, scale in (("us", 1e-6), ("ms", 1e-3)):
        if seconds < 1000 * scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds:.4g} s"
