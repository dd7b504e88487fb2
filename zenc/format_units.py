"""Bytes, seconds and shares in words, to four digits; numbers of ranks as runs."""

from __future__ import annotations

from collections.abc import Iterable

MOST_LETTERS = 60
"""Of ranks that are listed."""


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


def share_text(share: float) -> str:
    """``2.5 %``, ``0.01 %``; to one digit below a thousandth of a percent."""
    return f"{share * 100:.3g} %" if share >= 1e-5 or not share else f"{share * 100:.1g} %"


def runs_text(numbers: Iterable[int]) -> str:
    """``2 to 16, 20, 23 and 24``: ascending ``numbers``, of which there is one at least."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [text for a, b in runs for text in ([f"{a} to {b}"] if b > a + 1 else map(str, range(a, b + 1)))]
    return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else texts[0]


def ranks_text(ranks: tuple[int, ...]) -> str:
    """``rank 3``, ``ranks 0 to 5 and 9``; in many runs, their number alone."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    text = f"ranks {runs_text(ranks)}"
    return text if len(text) <= MOST_LETTERS else f"{len(ranks)} ranks"
