"""Numbers and names in words: plurals; bytes, seconds, shares and ranks; tables; the known word nearest to a slip."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Sequence

MOST_LETTERS = 60
"""The longest list of ranks that is written out, in letters."""


def count(number: int, what: str, many: str = "") -> str:
    """Return ``1 step``, ``12 steps``.

    ``many`` is the plural where it is not with ``s``: ``1 entry``, ``2 entries``.
    """
    return f"{number:,} {what if number == 1 else many or what + 's'}"


def size_text(count: float) -> str:
    """Return ``9999 B``, ``12.3 kB``, ``4.5 GB``: by thousands, as bandwidths are."""
    if count < 10_000:
        return f"{round(count)} B"
    for unit, scale in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if count < 1000 * scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count / 1e12:.4g} TB"


def seconds_text(seconds: float) -> str:
    """Return ``12.5 us``, ``3 ms``, ``1.5 s``."""
    for unit, scale in (("us", 1e-6), ("ms", 1e-3)):
        if seconds < 1000 * scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds:.4g} s"


def share_text(share: float) -> str:
    """Return ``2.5 %``, ``0.01 %``; to one digit below a thousandth of a percent."""
    return f"{share * 100:.3g} %" if share >= 1e-5 or not share else f"{share * 100:.1g} %"


def aligned(rows: Sequence[Sequence[str]], numbers: Container[int] = (), gap: str = "  ") -> list[str]:
    """Return ``rows`` as lines: cells of a column begin below each other, and end so in the columns ``numbers``."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    forms = [f"{'>' if place in numbers else '<'}{width}" for place, width in enumerate(widths)]
    return [gap.join(map(format, row, forms)).rstrip() for row in rows]


def runs_text(numbers: Iterable[int]) -> str:
    """Return ``2 to 16, 20, 23 and 24`` for ascending ``numbers``, at least one."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [text for a, b in runs for text in ([f"{a} to {b}"] if b > a + 1 else map(str, range(a, b + 1)))]
    return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else texts[0]


def ranks_text(ranks: tuple[int, ...]) -> str:
    """Return ``rank 3``, ``ranks 0 to 5 and 9``; in many runs, their number alone."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    text = f"ranks {runs_text(ranks)}"
    return text if len(text) <= MOST_LETTERS else f"{len(ranks)} ranks"


def sizes_text(sizes: tuple[int, ...]) -> str:
    """Return group sizes in words: ``1 to 16 ranks``, ``1 rank``, ``2, 4, 8 ranks``."""
    if len(sizes) == 1:
        return count(sizes[0], "rank")
    if sizes == tuple(range(sizes[0], sizes[-1] + 1)):
        return f"{sizes[0]} to {sizes[-1]} ranks"
    return f"{', '.join(map(str, sizes))} ranks"


MOST_COMPARED = 200
"""Most names that a slip is compared with: a text may have thousands of both."""


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Return `` (did you mean 'A'?)`` for the closest of ``choices``; empty where none is close."""
    close = closest(name, choices)
    return f" (did you mean '{close}'?)" if close else ""


def closest(name: str, choices: Iterable[str]) -> str | None:
    """Return the one of ``choices`` that ``name`` is most likely a slip of; None where none is close."""
    import difflib

    by_folded = {choice.lower(): choice for choice in itertools.islice(choices, MOST_COMPARED)}
    close = difflib.get_close_matches(name.lower(), by_folded, n=1)
    return by_folded[close[0]] if close else None


MOST_OFFERED = 4


def dotted_like(name: str, choices: Iterable[str]) -> str:
    """Return ``did you mean 'A' or 'B'?`` for dotted ``choices`` that ``name`` is part or slip of, or no text."""
    import difflib

    known = list(choices)
    parts = [each for each in known if f".{each}".endswith(f".{name}") or f"{each}.".startswith(f"{name}.")]
    longer = [each for each in known if f".{name}".endswith(f".{each}")]
    near = parts or longer or difflib.get_close_matches(name, known[:MOST_COMPARED], n=1)
    offered = " or ".join(f"'{each}'" for each in near[:MOST_OFFERED])
    more = f", or one of {len(near) - MOST_OFFERED} more" if len(near) > MOST_OFFERED else ""
    return f"did you mean {offered}{more}?" if near else ""
