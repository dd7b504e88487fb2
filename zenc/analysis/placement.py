"""A plan on a topology: the proof, the way of every move, the load of every link, and the memory of every rank.

    Placement = proof loads capacity warnings
    CutBound  = behind ahead least bytes               # ranks on both sides; bytes that must cross, and those that do

The cut-set bound: the bytes that must cross a link in a call, where it is the only route from some ranks to others. The
ranks ahead of such a link learn of those behind it by the bytes that cross it alone, though ranks pass things on. In
the end they hold the sum of all, and so, minus their own contributions, the sum of those behind: the values of its
units cross the link at least once. The bits that say which units these are come on top; how many they must be depends
on the gradients, so they are left out.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from zenc.analysis.expected_bytes import ExpectedBytes
from zenc.analysis.fit import ensure_fits
from zenc.analysis.link_load import LinkLoadObserver, LinkLoads, StepLoad, routes
from zenc.analysis.memory_model import MemoryModel, MemoryPeak
from zenc.common.wording import count, ranks_text, seconds_text, size_text
from zenc.errors import Diagnostic, TopologyError, raise_if_any
from zenc.plan.ir import Phase, Plan
from zenc.plan.requirements import format_ranks
from zenc.plan.unroll import Rounds, expand
from zenc.scheme.units import bandwidth_text
from zenc.topology.bound import all_reduce_rate, bound_at_once, bound_of, is_two_way
from zenc.topology.model import Link, Node, Topology
from zenc.verify.proof import Proof, prove
from zenc.verify.provenance import Deliveries

NEAR = 1.1
"""The ratio of carried to necessary bytes up to which a link is as good as relieved."""


@dataclass(frozen=True, slots=True)
class CutBound:
    """The bound of a link: ``least`` bytes a call of values must cross it; a scheme sends ``bytes``, with headers."""

    behind: tuple[int, ...]
    ahead: tuple[int, ...]
    least: float
    bytes: float

    @property
    def near(self) -> bool:
        """Return whether a scheme sends hardly more than the bound."""
        return self.bytes <= NEAR * self.least

    def text(self) -> str:
        """Return the bound in words, for a note."""
        sides = f"{ranks_text(self.behind)} can reach {ranks_text(self.ahead)} over this link alone"
        return f"{sides}: at least {size_text(self.least)} must cross it in a call, and {size_text(self.bytes)} do"


def bound_on(loads: LinkLoads, link: int, expected: ExpectedBytes) -> CutBound | None:
    """Return the bound on ``link``, a place in ``loads.links``; None where there are other routes."""
    behind, ahead = sides(loads.topology, loads.links[link])
    if not (behind and ahead):
        return None
    least = expected.units_held(len(behind)) * expected.unit_bytes
    return CutBound(behind, ahead, least, float(loads.total[link]))


def sides(topology: Topology, link: Link) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ranks that reach others over ``link`` alone, and those; both empty where there are other ways."""
    import networkx as nx

    graph = nx.DiGraph(topology.graph.edges)
    graph.remove_edge(link.source, link.target)
    ahead = set(topology.ranks) - {link.source} - nx.descendants(graph, link.source)
    reaching: set[Node] = set()
    for rank in ahead:
        if rank not in reaching:
            reaching |= {rank} | nx.ancestors(graph, rank)
    behind = set(topology.ranks) - reaching if ahead else set()
    return tuple(sorted(behind)), tuple(sorted(ahead)) if behind else ()


def contention(loads: LinkLoads, rounds: Rounds, expected: ExpectedBytes) -> list[Diagnostic]:
    """Return a warning for every statement with a contended step: the worst of them."""
    worst: dict[int, StepLoad] = {}
    for step in loads.steps:
        if step.contended and (step.line not in worst or step.seconds > worst[step.line].seconds):
            worst[step.line] = step
    return [_crowded(loads, rounds, expected, step) for step in worst.values()]


def _crowded(loads: LinkLoads, rounds: Rounds, expected: ExpectedBytes, step: StepLoad) -> Diagnostic:
    times = step.seconds / step.port_seconds if step.port_seconds else float("inf")
    message = (
        f"{step.moves} moves share the link {loads.name(step.link)}, which is busy {times:.3g} times as long as "
        f"the ranks' own links ({step.phase}, step {step.number})"
    )
    over = bound_on(loads, step.link, expected)
    notes = (*([over.text()] if over else []), format_ranks(rounds.size))
    help = "it carries little more than it must in any scheme: only a wider link would help"
    if not (over and over.near):
        by_tiers = "in a tier whose groups lie on one side each" if len(expected.plan.tiers) > 1 else "tiers do that"
        help = f"move less between its two sides, or sum on each side first: {by_tiers}"
    return Diagnostic("contended-link", message, rounds.sends[step.line].span, notes, help, "warning")


MOST_WARNINGS = 8


@dataclass(frozen=True, slots=True)
class Reach:
    """The ``bound`` of a cluster for a dense tensor, bytes a second, its ``cut``, and the ``share`` a plan can reach.

    ``share`` is of a call that takes no longer than the plan's busiest link needs for its bytes.
    """

    bound: float
    cut: str
    share: float

    def text(self) -> str:
        """Return the bound, the cut and the share in a line."""
        return f"{bandwidth_text(self.bound)} of a dense tensor, by {self.cut}; at most {self.share:.0%} by this scheme"


MOST_BOUND = 256
"""The most ranks of a topology whose bound ``reach`` finds: it takes a second or two."""


def reach(placement: Placement, bytes: int) -> Reach | None:
    """Return the share of the bound that a plan can reach, of its placement with a dense tensor of ``bytes``.

    None for one rank, or too many.
    """
    topology, link = placement.topology, placement.loads.bottleneck
    if link is None or topology.size > MOST_BOUND:
        return None
    bound = bound_of(topology)
    upwards = bound if is_two_way(topology) else bound_of(topology, upwards=True)
    fastest, rate = bytes / float(placement.loads.seconds[link]), all_reduce_rate(bound, upwards)
    if fastest > 1.001 * rate and is_two_way(topology):  # with sums and results on their way at once
        bound = upwards = bound_at_once(topology)
        rate = all_reduce_rate(bound, upwards)
    cut = bound.text(topology) if bound.rate <= upwards.rate else upwards.text(topology, upwards=True)
    return Reach(rate, cut, fastest / rate)


@dataclass(frozen=True, slots=True)
class Placement:
    """A plan on a topology; ``over`` is the bound of the bottleneck, where it is the only way between some ranks.

    ``reach``: the bound of the whole cluster, where it was asked for.
    """

    topology: Topology
    proof: Proof
    loads: LinkLoads
    capacity: MemoryPeak
    warnings: tuple[Diagnostic, ...]
    over: CutBound | None = None
    reach: Reach | None = None

    def to_json(self) -> dict[str, Any]:
        """Return loads and memory as JSON data."""
        least = self.over and round(self.over.least)
        bound = {"bound": asdict(self.reach)} if self.reach else {}
        return {**self.loads.to_json(), "bottleneck_least_bytes": least, **bound, "memory": self.capacity.to_json()}

    def text(self) -> list[str]:
        """Return the placement in a few lines: the bottleneck, and the rank that needs most memory."""
        loads, link = self.loads, self.loads.bottleneck
        lines = [f"on {self.topology.name}, of {count(self.topology.size, 'rank')}: every move has a way"]
        if link is not None:
            busy, bytes = seconds_text(float(loads.seconds[link])), size_text(float(loads.total[link]))
            lines.append(f"  bottleneck  {loads.name(link)}: {bytes} a call, for which it is busy {busy}")
            if self.over:
                held = ranks_text(self.over.behind)
                lines.append(f"              at least {size_text(self.over.least)} in any scheme: the sum of {held}")
        lines += [f"  bound       {self.reach.text()}"] if self.reach else []
        need = self.capacity.greatest
        lines.append(f"  memory      rank {need.rank} needs {size_text(need.bytes)} ({need.when}): {need.text()}")
        return lines


def place(plan: Plan, topology: Topology, expected: ExpectedBytes) -> Placement:
    """Prove ``plan`` among the ranks of ``topology``, and measure it there; ``expected`` is for the same ranks.

    Raises VerificationError as ``verify`` does, and TopologyError: ``wrong-topology-size``, ``no-route`` at the
    moves that have no way, ``tier-mismatch``, or ``memory-exceeded``.
    """
    found = ensure_fits(plan, topology)
    rounds = expand(plan, topology.size)
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


MOST_LINKS = 12
MOST_STEPS = 24


def placement_text(placement: Placement) -> list[str]:
    """Return the bottleneck and the memory, then the links and the steps."""
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
        crowd = f", {step.moves} moves share it" if step.crowd else ""
        late = " (contended)" if step.contended else ""
        load = f"{size_text(step.bytes)}, busy {seconds_text(step.seconds)}{crowd}{late}"
        lines.append(f"  {step.phase}, step {step.number}: {placement.loads.name(step.link)}: {load}")
    if len(steps) > MOST_STEPS:
        lines.append(f"  ... and {count(len(steps) - MOST_STEPS, 'more step')} (--json shows all)")
    return lines
