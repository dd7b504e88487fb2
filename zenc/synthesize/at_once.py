"""The bound of an all-reduce whose sums go up the trees while results come down them.

Whatever each rank owns: all of the tensor must leave each set of ranks, as contributions or as results, and all of it
must come in. And n ranks need 2 (n - 1) messages of each byte, half of them to sum it. One half after the other is
slower where ranks are unlike: a link that is narrow is then busy one way at a time.
"""

from __future__ import annotations

from fractions import Fraction

from zenc.topology.bound import Bound, MaximumFlow, taken_links
from zenc.topology.model import Topology, order


def bound_at_once(topology: Topology) -> Bound:
    """Return the least bound by cuts between ranks, or by the links of all; as a ``rate`` of each rank's share.

    Links are two-way.
    """
    size, links, least, cut = topology.size, taken_links(topology), 0, set[int | str]()
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
