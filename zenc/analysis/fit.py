"""The gate of a topology: whether the tiers, the number of ranks and the memory of a plan suit it, and suitable ones.

Each verb that takes a topology passes it, so none accepts what another one refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import accumulate
from math import prod
from operator import mul

from zenc.analysis.expected_bytes import ExpectedBytes
from zenc.analysis.memory_model import MemoryModel
from zenc.common.wording import count
from zenc.errors import Diagnostic, TopologyError, raise_if_any
from zenc.gradients.profile import Profile
from zenc.plan.ir import Plan, Tier
from zenc.plan.requirements import UnmetError, ensure_all, format_ranks
from zenc.plan.unroll import expand
from zenc.topology.model import Topology
from zenc.verify.proof import prove


def ensure_fits(plan: Plan, topology: Topology) -> list[Diagnostic]:
    """Return warnings about tiers of ``plan`` that match no level of ``topology``.

    Raises TopologyError (``wrong-topology-size``, ``tier-mismatch``) and UnmetError where it can't run there; the help
    names a plan or a topology that can.
    """
    if plan.size not in (None, topology.size):
        ranks = count(topology.size, "rank")
        message = f"{topology.name} has {ranks}, and the scheme is to run {format_ranks(plan.size or 0)}"
        help = "leave out the number of ranks, or choose another topology"
        raise TopologyError(Diagnostic("wrong-topology-size", message, help=help))
    found = list(tier_problems(plan, topology))
    try:
        ensure_all(plan, topology.size)
    except UnmetError as error:
        helps = [each.help for each in found if each.severity == "error"]
        raise UnmetError([replace(each, help=(helps or [each.help])[0]) for each in error.diagnostics]) from None
    raise_if_any(TopologyError, found)
    return found


def ensure_room(plan: Plan, topology: Topology, gradients: Iterable[Profile]) -> None:
    """Raise TopologyError (``memory-exceeded``) where a call needs more memory than ``topology`` is known to have."""
    told = [*map(topology.memory, topology.ranks), *(host.memory for host in topology.hosts)]
    if all(memory is None for memory in told):
        return
    rounds = expand(plan, topology.size)
    for gradient in gradients:
        ledger = MemoryModel(plan, rounds, ExpectedBytes(plan, topology.size, gradient, topology.has_gpus))
        prove(plan, rounds, ledger.observe)
        raise_if_any(TopologyError, ledger.capacity(topology).problems())


def tier_problems(plan: Plan, topology: Topology) -> Iterator[Diagnostic]:
    """Yield diagnostics of tiers of ``plan`` that do not match the levels of ``topology``, by names and by counts."""
    if len(plan.tiers) == 1 or not topology.levels:
        return
    units = units_of(topology)
    groups = [*accumulate((tier.size or 1 for tier in plan.tiers[:-1]), mul), topology.size]
    for tier, group in zip(plan.tiers, groups, strict=True):
        if tier.name in units and units[tier.name] != group:
            ranks, there = count(group, "rank"), units[tier.name]
            message = f"a group of tier {tier.name} has {ranks}, and a {tier.name} of {topology.name} has {there}"
            help = _fitting(plan, tier, group, there)
            yield Diagnostic("tier-mismatch", message, tier.span, (_levels(topology),), help)
        elif tier.name not in units and group not in (*units.values(), topology.size):
            near = get_close_matches(tier.name, units, n=1)
            help = f"did you mean '{near[0]}'?" if near else "name the tier after a level, or choose its size"
            message = f"groups of tier {tier.name} have {group} ranks, which is no level of {topology.name}"
            yield Diagnostic("tier-without-level", message, tier.span, (_levels(topology),), help, "warning")


def _fitting(plan: Plan, tier: Tier, group: int, there: int) -> str:
    """Return the setting with which a group of ``tier`` has the ranks that are ``there``; or a topology that fits."""
    other = f"a topology whose {tier.name} has {count(group, 'rank')}"
    inside = prod(each.size or 1 for each in plan.tiers[: tier.depth])
    if tier.size is None or there % inside:
        return f"choose {other}"
    size, text = there // inside, tier.span.source.text[tier.span.start : tier.span.end] if tier.span else ""
    named = re.match(r"tier\s+\w+\s*\(\s*([a-z_]\w*)\s*\)", text)
    if named and dict(plan.parameters).get(named[1]) == tier.size:
        return f"--set {named[1]}={size} fits (in Python params={{'{named[1]}': {size}}}); or choose {other}"
    return f"tier {tier.name}({size}) fits; or choose {other}"


def units_of(topology: Topology) -> dict[str, int]:
    """Return the number of ranks in one unit of each level by name, outermost first."""
    counts: Sequence[int] = [level.count for level in topology.levels]
    return {level.name: prod(counts[i + 1 :]) for i, level in enumerate(topology.levels)}


def _levels(topology: Topology) -> str:
    levels = ", ".join(f"{level.name} {level.count}" for level in topology.levels)
    return f"levels of {topology.name}, the outermost first: {levels}"
