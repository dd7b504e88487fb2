"""The shipped schemes, and the numbers of ranks that each of them allows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from zenc.language.files import load_file, locate
from zenc.plan.ir import Plan
from zenc.plan.lower import lower
from zenc.plan.requirements import allowed
from zenc.scheme.library import shipped
from zenc.scheme.resolve import resolve

ALL = [entry["name"] for entry in shipped() if not entry["candidates"]]
"""Those of one plan."""
LOSSY = [entry["name"] for entry in shipped() if entry["compression"]]
"""Those that select or encode: what is true of their sums is in the tests of compression."""
SHIPPED = [name for name in ALL if name not in LOSSY]
"""Those whose sums are those of the gradients. ``auto`` chooses among them."""


@lru_cache(maxsize=256)
def plan_of_shipped(name: str, size: int | None = None, **parameters: float) -> Plan:
    """The plan of a shipped scheme; parameters have their defaults where they are not given."""
    return lower(resolve(load_file(locate(name)), name, parameters)[0], size)


def cases(sizes: Iterable[int], schemes: Iterable[str] = SHIPPED) -> list[tuple[str, int]]:
    """Each shipped scheme with each of ``sizes`` that it allows."""
    return [(name, size) for name in schemes for size in allowed(plan_of_shipped(name), sizes)]
