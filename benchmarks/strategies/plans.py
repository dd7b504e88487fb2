"""Plans of shipped schemes and of texts, as the tables of published systems are computed with them."""

from __future__ import annotations

from zenc.language.files import load_file, load_text, locate
from zenc.plan.ir import Plan
from zenc.plan.lower import lower
from zenc.scheme.resolve import resolve


def plan_of(name: str, ranks: int, **params: str) -> Plan:
    """Return the plan of the shipped scheme ``name`` among ``ranks``."""
    return lower(resolve(load_file(locate(name)), name, params, {})[0], ranks)


def plan_of_text(text: str, ranks: int) -> Plan:
    """Return the plan of the one scheme in ``text``."""
    return lower(resolve(load_text(text, "asked.zen"))[0], ranks)
