"""The bound of a cluster: the rate at which every rank can send to all others at once, and the cut that allows no more.

All that leaves a set of nodes S must have left its ranks: where a rank is outside of S, each rank in S can send to all
at most at the rate (bandwidth leaving S) / (ranks in S). The least of that over all S is the bound, and there are trees
that reach it (Edmonds 1973; for clusters with switches Zhao et al., "ForestColl", arXiv 2402.06787, theorem 1). It is
found by maximum flows: from a source that feeds every rank at the rate, all of it must come to each rank. Where it
does not, the cut that stops it has a lower rate, which is tried next (Dinkelbach 1967); no rate has to be guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from zenc.errors import Diagnostic, TopologyError
from zenc.topology.model import Node, Topology, order

MOST_RANKS = 1024
"""Most ranks of a cluster that is synthesized for."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound of a cluster: ``rate`` of each rank to all others, bytes a second; ``cut``: the nodes that limit it.

    ``size`` is the number of ranks; ``leaving`` the bandwidth that leaves the cut, bytes a second.
    """

    size: int
    rate: Fraction
    cut: tuple[Node, ...]
    leaving: int

    @property
    def inside(self) -> int:
        """The number of ranks in the cut."""
        return sum(isinstance(node, int) for node in self.cut)

    @property
    def all_gather(self) -> float:
        """Bytes of the result of an all-gather, a second."""
        return float(self.size * self.rate)

    @property
    def all_reduce(self) -> float:
        """Bytes of the tensor of an all-reduce, a second: half of an all-gather's, which follows its mirror image."""
        return self.all_gather / 2


def bound_of(topology: Topology, progress: Callable[[str], None] = lambda _: None) -> Bound:
    """Return the bound of ``topology``.

    Raises TopologyError: ``too-many-ranks``, ``unreachable-rank`` where some ranks hear nothing of others, and
    ``wrong-topology`` for a single rank, which has nobody to send to.
    """
    size = topology.size
    if size < 2:
        raise TopologyError(Diagnostic("wrong-topology-size", f"{topology.name} has one rank, and nothing to send"))
    if size > MOST_RANKS:
        message = f"{topology.name} has {size:,} ranks, and schemes are synthesized for at most {MOST_RANKS:,}"
        help = "synthesize for one machine or a few, and name that scheme in a tier"
        raise TopologyError(Diagnostic("too-many-ranks", message, help=help))
    _ensure_reached(topology)
    links = [(link.source, link.target, max(1, round(link.bandwidth))) for link in topology.links]
    best = _first_guess(topology, links)
    for rank in topology.ranks:
        progress(f"the bound: rank {rank} of {size}")
        while (lower := _lower(size, links, best, rank)) is not None:
            best = lower
    return best


def _ensure_reached(topology: Topology) -> None:
    import networkx as nx

    parts = list(nx.strongly_connected_components(topology.graph))
    with_ranks = sorted((sorted(rank for rank in part if isinstance(rank, int)) for part in parts), key=len)
    apart = [part for part in with_ranks if part]
    if len(apart) < 2:
        return
    first = apart[0][0]
    other = next(rank for rank in apart[-1] if rank != first)
    forth = nx.has_path(topology.graph, first, other)
    source, target = (other, first) if forth else (first, other)
    message = f"nothing that {topology.label(source)} sends can come to {topology.label(target)} on {topology.name}"
    help = "link them, by other ranks or switches; an all-reduce needs a way from every rank to every other"
    raise TopologyError(Diagnostic("unreachable-rank", message, help=help))


_Links = list[tuple[Node, Node, int]]


def _cut(size: int, links: _Links, inside: set[Node]) -> Bound:
    leaving = sum(width for tail, head, width in links if tail in inside and head not in inside)
    ranks = sum(isinstance(node, int) for node in inside)
    return Bound(size, Fraction(leaving, ranks), tuple(sorted(inside, key=order)), leaving)


def _first_guess(topology: Topology, links: _Links) -> Bound:
    """Return the least of the cuts around one rank, in its two directions."""
    every = set(topology.graph)
    cuts = [inside for rank in topology.ranks for inside in ({rank}, every - {rank})]
    return min((_cut(topology.size, links, set(inside)) for inside in cuts), key=lambda found: found.rate)


def _lower(size: int, links: _Links, best: Bound, rank: int) -> Bound | None:
    """Return a cut without ``rank`` of a lower rate than ``best``; None where there is none."""
    scale, supply = best.rate.denominator, best.rate.numerator
    flow = Flow()
    for tail, head, width in links:
        flow.link(tail, head, width * scale)
    for other in range(size):
        if other != rank:
            flow.link(_SOURCE, other, supply)
    if flow.run(_SOURCE, rank) == supply * (size - 1):
        return None
    return _cut(size, links, flow.reached(_SOURCE) - {_SOURCE})


_SOURCE = "\0source"


class Flow:
    """A maximum flow of integers from one node to another, by shortest ways (Dinic 1970)."""

    def __init__(self) -> None:
        self.heads: list[Node] = []
        self.left: list[int] = []
        self.at: dict[Node, list[int]] = {}

    def link(self, tail: Node, head: Node, width: int) -> None:
        """Add a link; its reverse, of no width, has the number after it."""
        self.at.setdefault(tail, []).append(len(self.heads))
        self.at.setdefault(head, []).append(len(self.heads) + 1)
        self.heads += [head, tail]
        self.left += [width, 0]

    def run(self, source: Node, target: Node) -> int:
        """Return the greatest flow from ``source`` to ``target``."""
        total = 0
        while target in (depth := self._depths(source)):
            onward = {node: iter(links) for node, links in self.at.items()}
            while pushed := self._augment(source, target, depth, onward):
                total += pushed
        return total

    def reached(self, source: Node) -> set[Node]:
        """Return the nodes that more could flow to: the side of ``source`` of a least cut, after ``run``."""
        return set(self._depths(source))

    def _depths(self, source: Node) -> dict[Node, int]:
        depth, queue = {source: 0}, [source]
        for node in queue:
            for link in self.at.get(node, ()):
                head = self.heads[link]
                if self.left[link] and head not in depth:
                    depth[head] = depth[node] + 1
                    queue.append(head)
        return depth

    def _augment(self, source: Node, target: Node, depth: dict[Node, int], onward: dict[Node, object]) -> int:
        """Send as much as one way holds, along links that lead deeper; return it, 0 where no way is left."""
        way: list[int] = []
        node = source
        while node != target:
            for link in onward[node]:  # type: ignore[attr-defined]
                if self.left[link] and depth.get(self.heads[link], -1) == depth[node] + 1:
                    way.append(link)
                    node = self.heads[link]
                    break
            else:
                if not way:
                    return 0
                depth.pop(node, None)
                node = self.heads[way.pop() ^ 1]
        pushed = min(self.left[link] for link in way)
        for link in way:
            self.left[link] -= pushed
            self.left[link ^ 1] += pushed
        return self._again(way, onward, pushed)

    def _again(self, way: list[int], onward: dict[Node, object], pushed: int) -> int:
        """Let the links of ``way`` be looked at once more where they have room left."""
        from itertools import chain

        for link in way:
            if self.left[link]:
                tail = self.heads[link ^ 1]
                onward[tail] = chain([link], onward[tail])  # type: ignore[call-overload]
        return pushed
