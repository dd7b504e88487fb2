"""A plan on a topology: the proof, the way of every move, the load of every link, and the memory of every rank.

Placement = proof loads capacity warnings
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

import numpy as np

from zenc.analysis.cut_bound import CutBound, bound_on, contention
from zenc.analysis.expected_bytes import ExpectedBytes
from zenc.analysis.link_load import LinkLoadObserver, LinkLoads, StepLoad, routes
from zenc.analysis.memory_model import MemoryModel, MemoryPeak
from zenc.errors import Diagnostic, TopologyError, raise_if_any
from zenc.format_units import ranks_text, seconds_text, size_text
from zenc.plan.ir import Phase, Plan
from zenc.plan.requirements import format_ranks
from zenc.plan.unroll import expand
from zenc.plurals import count
from zenc.topology.model import Topology
from zenc.verify.proof import Proof, prove
from zenc.verify.provenance import Deliveries

MOST_WARNINGS = 8


@dataclass(frozen=True, slots=True)
class Placement:
    """``over``: what must cross the bottleneck, where that is the only way between some ranks."""

    topology: Topology
    proof: Proof
    loads: LinkLoads
    capacity: MemoryPeak
    warnings: tuple[Diagnostic, ...]
    over: CutBound | None = None

    def to_json(self) -> dict[str, Any]:
        """Loads and memory as JSON data."""
        least = self.over and round(self.over.least)
        return {**self.loads.to_json(), "bottleneck_least_bytes": least, "memory": self.capacity.to_json()}

    def text(self) -> list[str]:
        """The same in a few lines: the bottleneck, and who needs most memory."""
        loads, link = self.loads, self.loads.bottleneck
        lines = [f"on {self.topology.name}, of {count(self.topology.size, 'rank')}: every move has a way"]
        if link is not None:
            busy, bytes = seconds_text(float(loads.seconds[link])), size_text(float(loads.total[link]))
            lines.append(f"  bottleneck  {loads.name(link)}: {bytes} a call, for which it is busy {busy}")
            if self.over:
                held = ranks_text(self.over.behind)
                lines.append(f"              at least {size_text(self.over.least)} in any scheme: the sum of {held}")
        need = self.capacity.greatest
        lines.append(f"  memory      rank {need.rank} needs {size_text(need.bytes)} ({need.when}): {need.text()}")
        return lines


def place(plan: Plan, topology: Topology, expected: ExpectedBytes) -> Placement:
    """Prove ``plan`` among the ranks of ``topology``, and measure it there; ``expected`` is for the same ranks.

    Raises VerificationError as ``verify`` does, and TopologyError: ``wrong-topology-size``, ``no-route`` at the
    moves that have no way, ``tier-mismatch``, or ``memory-exceeded``.
    """
    if plan.size not in (None, topology.size):
        ranks = count(topology.size, "rank")
        message = f"{topology.name} has {ranks}, and the scheme is to run {format_ranks(plan.size or 0)}"
        help = "leave out the number of ranks, or choose another topology"
        raise TopologyError(Diagnostic("wrong-topology-size", message, help=help))
    rounds = expand(plan, topology.size)
    raise_if_any(TopologyError, found := list(tier_problems(plan, topology)))
    meter = LinkLoadObserver(routes(rounds, topology), expected)
    ledger = MemoryModel(plan, rounds, expected)

    def observe(phase: Phase, number: int, moved: Deliveries) -> None:
        meter.observe(phase, number, moved)
        ledger.observe(phase, number, moved)

    proof = prove(plan, rounds, observe)
    loads, capacity = meter.loads(), ledger.capacity(topology)
    raise_if_any(TopologyError, capacity.problems())
    found += contention(loads, rounds, expected)
    over = None if loads.bottleneck is None else bound_on(loads, loads.bottleneck, expected)
    return Placement(topology, proof, loads, capacity, tuple(found[:MOST_WARNINGS]), over)


def tier_problems(plan: Plan, topology: Topology) -> Iterator[Diagnostic]:
    """Diagnostics of tiers of ``plan`` that do not match the levels of ``topology``, by names and by counts."""
    if len(plan.tiers) == 1 or not topology.levels:
        return
    units = units_of(topology)
    groups = [*accumulate((tier.size or 1 for tier in plan.tiers[:-1]), mul), topology.size]
    for tier, group in zip(plan.tiers, groups, strict=True):
        if tier.name in units and units[tier.name] != group:
            ranks = count(group, "rank")
            message = f"a group of tier {tier.name} has {ranks}, and a {tier.name} of {topology.name} has "
            yield Diagnostic("tier-mismatch", message + str(units[tier.name]), tier.span, (_levels(topology),))
        elif tier.name not in units and group not in (*units.values(), topology.size):
            near = get_close_matches(tier.name, units, n=1)
            help = f"did you mean '{near[0]}'?" if near else None
            message = f"groups of tier {tier.name} have {group} ranks, which is no level of {topology.name}"
            yield Diagnostic("tier-without-level", message, tier.span, (_levels(topology),), help, "warning")


def units_of(topology: Topology) -> dict[str, int]:
    """Level name -> how many ranks one of it has, outermost first."""
    counts: Sequence[int] = [level.count for level in topology.levels]
    return {level.name: prod(counts[i + 1 :]) for i, level in enumerate(topology.levels)}


def _levels(topology: Topology) -> str:
    levels = ", ".join(f"{level.name} {level.count}" for level in topology.levels)
    return f"levels of {topology.name}, the outermost first: {levels}"


MOST_LINKS = 12
MOST_STEPS = 24


def placement_text(placement: Placement) -> list[str]:
    """The bottleneck and the memory, then the links and the steps."""
    return [*placement.text(), *_links(placement), *_steps(placement)]


def _links(placement: Placement) -> list[str]:
    loads = placement.loads
    used = int((loads.total > 0).sum())
    order = np.argsort(-loads.seconds, kind="stable")[: min(used, MOST_LINKS)].tolist()
    if not order:
        return []
    width = max(len(loads.name(link)) for link in order)
    heading = f"links by load ({len(order)} of {used} that carry anything)"
    lines = [f"{heading:{width + 2}} {'bytes a call':>14} {'busy':>10}"]
    for link in order:
        bytes, busy = size_text(float(loads.total[link])), seconds_text(float(loads.seconds[link]))
        pad = max(0, len(heading) - width - 2)
        lines.append(f"  {loads.name(link):{width + pad}} {bytes:>14} {busy:>10}")
    return lines


def _steps(placement: Placement) -> list[str]:
    steps = placement.loads.steps
    lines = ["busiest link of each step"] if steps else []
    for step in steps[:MOST_STEPS]:
        lines.append(_step(placement, step))
    if len(steps) > MOST_STEPS:
        lines.append(f"  ... and {count(len(steps) - MOST_STEPS, 'more step')} (--json shows all)")
    return lines


def _step(placement: Placement, step: StepLoad) -> str:
    crowd = f", {step.moves} moves share it" if step.crowd else ""
    late = " (contended)" if step.contended else ""
    load = f"{size_text(step.bytes)}, busy {seconds_text(step.seconds)}"
    return f"  {step.phase}, step {step.number}: {placement.loads.name(step.link)}: {load}{crowd}{late}"
