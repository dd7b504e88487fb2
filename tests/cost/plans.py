"""Plans of the schemes that come with zenc."""

from __future__ import annotations

from functools import cache

from zenc.language.load import load_file, locate, shipped_names
from zenc.plan.lower import lower
from zenc.plan.model import Plan
from zenc.scheme.resolve import resolve

SHIPPED = tuple(name for name in sorted(shipped_names()) if name != "patterns")


@cache
def plan_of(scheme: str, size: int) -> Plan:
    """Of the shipped ``scheme``, for ``size`` ranks."""
    parameters = {"gpus": min(4, size)} if scheme == "zen_cluster" else {}
    return lower(resolve(load_file(locate(scheme)), None, parameters, {})[0])
