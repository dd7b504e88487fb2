"""The marked part of benchmarks/reports/strategies.md, made of the results alone."""

from __future__ import annotations

from benchmarks.pages import between
from benchmarks.strategies import Results
from benchmarks.strategies import espresso_page as espresso
from benchmarks.strategies import others_page as others

BEGIN = "<!-- results: written by make strategies -->"
SECTIONS = (
    espresso.espresso,
    espresso.scaling,
    espresso.peers,
    espresso.choosing,
    espresso.crippled,
    espresso.never_worse,
    others.groups,
    others.mergecomp,
    others.topka2a,
    others.conditions,
    others.byteps,
    others.oscar,
)


def with_results(page: str, results: Results) -> str:
    """Return ``page`` with its marked part made anew; raises ValueError where it has none."""
    return between(page, part(results), BEGIN)


def part(results: Results) -> str:
    return "\n\n".join(section(results) for section in SECTIONS)
