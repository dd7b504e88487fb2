"""The bound of a cluster: the rate at which every rank can send to all others at once, and the cut that allows no more.

All that leaves a set of nodes S must have left its ranks: where a rank is outside of S, each rank in S can send to all
at most at the rate (bandwidth leaving S) / (ranks in S). The least of that over all S is the bound, and there are trees
that reach it (Edmonds 1973; for clusters with switches Zhao et al., "ForestColl", arXiv 2402.06787, theorem 1). It is
found by maximum flows: from a source that feeds every rank at the rate, all of it must come to each rank. Where it
does not, the cut that stops it has a lower rate, which is tried next (Dinkelbach 1967); no rate has to be guessed.

Sums can also go up trees while results come down. All of the tensor must then leave each set of ranks, as contributions
or as results, and as much must come in, whatever each rank owns; and n ranks need 2 (n - 1) messages of each byte, half
of them to sum it. ``bound_at_once`` is the least of these: where ranks are unlike it is higher.

Links are those that messages take: PCIe beside an NVLink is on no route of ``zenc.topology.all_pairs``, and carries
nothing in any scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from zenc.common.wording import count
from zenc.errors import Diagnostic, TopologyError
from zenc.scheme.units import bandwidth_text
from zenc.topology.model import Link, Node, Topology, order

MOST_RANKS = 512
"""Most ranks of a cluster that is synthesized for."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound of a cluster: ``rate`` of each rank to all others, bytes a second; ``cut``: the nodes that limit it.

    ``size`` is the number of ranks; ``leaving`` the bandwidth that leaves the cut, bytes a second. ``at_once``: it is
    that of ``bound_at_once``.
    """

    size: int
    rate: Fraction
    cut: tuple[Node, ...]
    leaving: int
    at_once: bool = False

    @property
    def inside(self) -> int:
        """The number of ranks in the cut."""
        return sum(isinstance(node, int) for node in self.cut)

    @property
    def all_gather(self) -> float:
        """Bytes of the tensor a second, in an all-gather, or a reduce-scatter upwards."""
        return float(self.size * self.rate)

    def text(self, topology: Topology, upwards: bool = False) -> str:
        """Return the cut in a line: what leaves or comes in, and whose ranks it is."""
        outside = [node for node in topology.ranks if node not in set(self.cut)]
        inside = [node for node in self.cut if isinstance(node, int)]
        few, into = (outside, not upwards) if len(outside) < len(inside) else (inside, upwards)
        named = ", ".join(topology.label(node) for node in few[:4])
        more = f" and {len(few) - 4} more" if len(few) > 4 else ""
        ranks = count(self.inside, "rank")
        if self.at_once:
            return (
                f"{bandwidth_text(self.leaving)} from {named}{more}, each way: all of the tensor crosses it both ways"
            )
        return f"{bandwidth_text(self.leaving)} {'to' if into else 'from'} {named}{more}, for what belongs to {ranks}"


def is_two_way(topology: Topology) -> bool:
    """Return whether each link has one as wide in the other direction: then sums go where results come from."""
    wide = {(link.source, link.target): link.bandwidth for link in topology.links}
    return all(wide.get((head, tail)) == width for (tail, head), width in wide.items())


def comes_back(topology: Topology) -> bool:
    """Return whether routes lead back over the links they came by, the other way: many cards are taken in turns.

    Links are two-way.
    """
    place = {(link.source, link.target): i for i, link in enumerate(topology.links)}
    back = np.array([place[link.target, link.source] for link in topology.links])
    one, other = np.divmod(np.arange(topology.size**2), topology.size)
    there, here = (topology.routes.paths(*ends).over(np.arange(len(one))) for ends in ((one, other), (other, one)))
    codes = [np.sort(pair * len(back) + link) for pair, link in (there, (here[0], back[here[1]]))]
    return np.array_equal(codes[0], codes[1])


def all_reduce_rate(bound: Bound, upwards: Bound) -> float:
    """Return bytes of a dense tensor a second: a reduce-scatter and an all-gather, one after the other."""
    return 1 / (1 / bound.all_gather + 1 / upwards.all_gather)


def taken_links(topology: Topology) -> list[Link]:
    """Return the links that are on the route of a message between any two ranks."""
    pairs = np.arange(topology.size**2)
    taken = np.unique(topology.routes.paths(*np.divmod(pairs, topology.size)).links)
    return [topology.links[place] for place in taken.tolist()]


def bound_of(
    topology: Topology,
    upwards: bool = False,
    progress: Callable[[str], None] = lambda _: None,
    links: Sequence[Link] | None = None,
) -> Bound:
    """Return the bound of an all-gather on ``topology``; ``upwards`` of a reduce-scatter, for which links turn round.

    It is that of ``links``, by default of those that messages take.

    Raises TopologyError: ``topology-too-large``, and ``wrong-topology-size`` for one rank, which has nobody to send to.
    """
    size = topology.size
    if size < 2:
        raise TopologyError(Diagnostic("wrong-topology-size", f"{topology.name} has one rank, and nothing to send"))
    if size > MOST_RANKS:
        message = f"{topology.name} has {size:,} ranks, and schemes are synthesized for at most {MOST_RANKS:,}"
        help = "synthesize for some of its machines, and choose among tiers by zenc tune for all of them"
        raise TopologyError(Diagnostic("topology-too-large", message, help=help))
    links = taken_links(topology) if links is None else links
    ends = ((x.target, x.source) if upwards else (x.source, x.target) for x in links)
    edges = [(*end, max(1, round(x.bandwidth))) for end, x in zip(ends, links, strict=True)]
    best = _first_guess(topology, edges)
    for rank in topology.ranks:
        progress(f"the bound: rank {rank} of {size}")
        while (lower := _lower(size, edges, best, rank)) is not None:
            best = lower
    return best


def bound_at_once(topology: Topology) -> Bound:
    """Return the least bound by cuts between ranks, or by the links of all, where both halves of a call run at once.

    Links are two-way.
    """
    size, links, least, cut = topology.size, taken_links(topology), 0, set[Node]()
    for rank in topology.ranks[1:]:
        flow = MaximumFlow()
        for link in links:
            flow.link(link.source, link.target, max(1, round(link.bandwidth)))
        found = flow.run(0, rank)
        if not cut or found < least:
            least, cut = found, flow.reached(0)
    leaving = round(sum(link.bandwidth for link in links if isinstance(link.source, int)))
    rate = min(Fraction(least), Fraction(leaving, 2 * (size - 1)))
    return Bound(size, rate * 2 / size, tuple(sorted(cut, key=order)), least, at_once=True)


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
    """Return a cut without ``rank``, but with all ranks below it, of a lower rate than ``best``; None if none has one.

    A cut without a rank below is found for that one. So those below are sources too, and ways are short (Hao, Orlin,
    "A faster algorithm for finding the minimum cut in a directed graph", 1994).
    """
    scale, supply = best.rate.denominator, best.rate.numerator
    needed = supply * (size - 1)
    flow = MaximumFlow()
    for tail, head, width in links:
        flow.link(tail, head, width * scale)
    for other in range(size):
        if other != rank:
            flow.link(_SOURCE, other, needed if other < rank else supply)
    flow.link(rank, _SINK, needed)
    if flow.run(_SOURCE, _SINK) == needed:
        return None
    return _cut(size, links, flow.reached(_SOURCE) - {_SOURCE})


_SOURCE, _SINK = "\0source", "\0sink"


class MaximumFlow:
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
            onward = {node: list(links) for node, links in self.at.items()}
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

    def _augment(self, source: Node, target: Node, depth: dict[Node, int], onward: dict[Node, list[int]]) -> int:
        """Send as much as one way holds, along links that lead deeper; return it, 0 where no way is left."""
        way: list[int] = []
        node = source
        while node != target:
            if not onward[node]:
                if not way:
                    return 0
                node = self.heads[way.pop() ^ 1]
                onward[node].pop()
            elif self._leads(link := onward[node][-1], depth, node):
                way.append(link)
                node = self.heads[link]
            else:
                onward[node].pop()
        pushed = min(self.left[link] for link in way)
        for link in way:
            self.left[link] -= pushed
            self.left[link ^ 1] += pushed
        return pushed

    def _leads(self, link: int, depth: dict[Node, int], node: Node) -> bool:
        return bool(self.left[link]) and depth.get(self.heads[link], -1) == depth[node] + 1
