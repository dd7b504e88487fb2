"""The shipped schemes, and the numbers of ranks that each of them allows."""

from collections.abc import Iterable
from functools import lru_cache

from zenc.language.files import load_file, locate
from zenc.plan.ir import Plan
from zenc.plan.lower import lower
from zenc.plan.requirements import allowed
from zenc.scheme.library import shipped
from zenc.scheme.resolve import resolve

ALL = [entry["name"] for entry in shipped() if not entry["candidates"]]
"""Shipped schemes of a single plan."""
LOSSY = [entry["name"] for entry in shipped() if entry["compression"]]
"""Shipped schemes that select or encode, with sums that the tests of compression check."""
SHIPPED = [name for name in ALL if name not in LOSSY]
"""Shipped schemes with lossless sums, among which ``auto`` chooses."""


@lru_cache(maxsize=256)
def plan_of_shipped(name: str, size: int | None = None, **parameters: float) -> Plan:
    """Return the plan of a shipped scheme; parameters that are not given have their defaults."""
    return lower(resolve(load_file(locate(name)), name, parameters)[0], size)


def cases(sizes: Iterable[int], schemes: Iterable[str] = SHIPPED) -> list[tuple[str, int]]:
    """Return each shipped scheme with each of ``sizes`` that it allows."""
    return [(name, size) for name in schemes for size in allowed(plan_of_shipped(name), sizes)]


def plan_of(scheme: str, size: int) -> Plan:
    """Return the plan of a shipped scheme, whose tiers fit ``size`` ranks."""
    return plan_of_shipped(scheme, **({"gpus": min(4, size)} if scheme == "zen_cluster" else {}))
