"""The cut-set bound: the bytes that must cross a link in a call, where it is the only route from some ranks to others.

    CutBound = behind ahead least bytes               # ranks on both sides; bytes that must cross, and that do

The ranks ahead of such a link learn of those behind it by what crosses it and by nothing else, though ranks pass things
on. In the end they hold the sum of all, and so, with what they gave themselves taken off, the sum of those behind: the
values of its units cross the link at least once (a cut-set bound). The bits that say which units these are come on top;
how many they must be depends on the gradients, so they are left out.

Warnings tell of the links at which steps are held up, with this bound and what could be done.
"""

from __future__ import annotations

from dataclasses import dataclass

from zenc.analysis.expected_bytes import ExpectedBytes
from zenc.analysis.link_load import LinkLoads, StepLoad
from zenc.errors import Diagnostic
from zenc.format_units import ranks_text, size_text
from zenc.plan.requirements import format_ranks
from zenc.plan.unroll import Rounds
from zenc.topology.model import Link, Node, Topology

NEAR = 1.1
"""A link that carries no more than so many times what it must is as good as relieved."""


@dataclass(frozen=True, slots=True)
class CutBound:
    """``least``: bytes a call of the values that must cross; ``bytes``: what a scheme sends, headers and all."""

    behind: tuple[int, ...]
    ahead: tuple[int, ...]
    least: float
    bytes: float

    @property
    def near(self) -> bool:
        """Whether a scheme sends hardly more than it must."""
        return self.bytes <= NEAR * self.least

    def text(self) -> str:
        """In words, for a note."""
        sides = f"{ranks_text(self.behind)} can reach {ranks_text(self.ahead)} over this link alone"
        return f"{sides}: at least {size_text(self.least)} must cross it in a call, and {size_text(self.bytes)} do"


def bound_on(loads: LinkLoads, link: int, expected: ExpectedBytes) -> CutBound | None:
    """The bound on ``link``, a place in ``loads.links``; None where there are other routes."""
    behind, ahead = sides(loads.topology, loads.links[link])
    if not (behind and ahead):
        return None
    least = expected.units_held(len(behind)) * expected.unit_bytes
    return CutBound(behind, ahead, least, float(loads.total[link]))


def sides(topology: Topology, link: Link) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ranks that reach some others over ``link`` alone, and these; both empty where there are other ways."""
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
    """A warning for every statement with a contended step: the worst of them."""
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
