"""Tables and figures as the page has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

FIGURES = {
    "ratios": "Ratios as published, as computed, and what zenc's best scheme is beside them",
    "sums": "How dense the sum of k ranks is: the fitted profiles, and the published points",
    "nmt": "NMT: time of the busiest GPU over that of a dense all-reduce, by volume",
}
LEFT, RIGHT = "---", "---:"


def table(heads: Sequence[str], ways: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, ways, *rows))


def picture(name: str) -> str:
    return f"![{FIGURES[name]}](../reproduction/{name}.svg)"
