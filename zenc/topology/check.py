"""Checks of a finished draft: bandwidths above 0, latencies of 0 to 1 s, and a path between any two ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from zenc.errors import Diagnostic, Span
from zenc.topology.model import RANK, Node, order

if TYPE_CHECKING:
    import networkx as nx

MOST_NODES = 1 << 16
MOST_LINKS = 1 << 18
"""Both directions counted. Far beyond a fat tree of 27,648 machines, and checked before anything is built."""

SLOWEST = 1.0
"""Seconds of latency. Anything longer is a slip of a unit."""


def too_large(nodes: int, links: int, span: Span | None = None) -> Diagnostic | None:
    """The diagnostic for a topology of at least so many nodes and links; None where it is small enough."""
    if nodes <= MOST_NODES and links <= MOST_LINKS:
        return None
    what = f"{nodes} nodes" if nodes > MOST_NODES else f"{links} links"
    message = f"this topology is too large: {what} or more"
    help = f"a topology has at most {MOST_NODES} nodes and {MOST_LINKS} links; leave out what no message crosses"
    return Diagnostic("topology-too-large", message, span, help=help)


def number_problems(what: str, bandwidth: float, latency: float, span: Span | None) -> Iterable[Diagnostic]:
    """Diagnostics of impossible numbers of the link that is called ``what``."""
    if not (0 < bandwidth < math.inf):
        message = f"{what} has a bandwidth of {bandwidth:g} bytes/s"
        yield Diagnostic("bad-bandwidth", message, span, help="leave out a link that carries nothing")
    if not (0 <= latency <= SLOWEST):
        message = f"{what} has a latency of {latency:g} s"
        yield Diagnostic("bad-latency", message, span, help="a latency is 0 to 1 second; 0 counts for nothing")


def graph_problems(name: str, graph: nx.DiGraph[Any], span: Span | None) -> list[Diagnostic]:
    """Diagnostics of the whole graph: no ranks, or ranks that can't reach each other over any number of links."""
    ranks = [node for node, kind in graph.nodes(data="kind") if kind == RANK]
    if not ranks:
        help = "say how many there are: levels: node(2), gpu(8)"
        return [Diagnostic("no-ranks", f"topology '{name}' has no ranks", span, help=help)]
    root = min(ranks)
    for neighbours, way in ((graph.adj, "from {0} to {1}"), (graph.pred, "from {1} to {0}")):
        cut_off = sorted(set(ranks) - _reached(root, neighbours))
        if cut_off:
            labels = [str(graph.nodes[node]["label"]) for node in (root, cut_off[0])]
            message = f"topology '{name}' has an island: no way leads {way.format(*labels)}"
            notes = (_cut_off(graph, cut_off, len(ranks)),)
            help = "add a link, or leave out what is not part of the cluster"
            return [Diagnostic("island", message, span, notes, help)]
    return []


def _reached(root: Node, neighbours: Any) -> set[Node]:
    """All nodes to which links lead from ``root``, by way of any node."""
    reached, pending = {root}, [root]
    while pending:
        for other in neighbours[pending.pop()]:
            if other not in reached:
                reached.add(other)
                pending.append(other)
    return reached


_MOST_NAMED = 8


def _cut_off(graph: nx.DiGraph[Any], ranks: list[Node], all_ranks: int) -> str:
    named = ", ".join(str(graph.nodes[rank]["label"]) for rank in sorted(ranks, key=order)[:_MOST_NAMED])
    more = f" and {len(ranks) - _MOST_NAMED} more" if len(ranks) > _MOST_NAMED else ""
    return f"cut off are {len(ranks)} of {all_ranks} ranks: {named}{more}"
