"""Routing: the links of messages between ranks, of many pairs at once.

    Paths = counts links # the number of links of each pair, and all links, pair by pair

The rule, from the first to the last that decides:

1. only switches, NICs and CPUs forward; a rank never does;
2. the widest way: the greatest bandwidth of its narrowest link, which is what a large message sees;
3. the fewest links;
4. the least latency, in whole picoseconds;
5. among ways that are equal in all that, the next hop is the one in place ``s mod k`` of the k in the order of names,
   where s is the sum of ``target / c`` for this choice and those before it on the way, and c the product of the
   numbers before each. In a fat tree this is D-mod-k routing (Zahavi, "D-Mod-K routing providing non-blocking traffic
   for shift permutations on real life fat trees", 2010) but for the names of cores: neighbours go by different spines.
   The sum lets the ranks of a machine hear by all of its cards.

So routes are the same on every machine and in every run. The nodes are treated together, as arrays: of a thousand
ranks a million routes are found in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

_HOP = 1 << 46
"""Length of a link in a distance, which is one number: this much for each link, and the picoseconds of all links. No
sane latency comes near."""
NO_ROUTE = -1
MOST_CELLS = 1 << 19
"""Most numbers in one of the arrays of a chunk of targets."""
_FAR = np.int64(1) << np.int64(61)
_MOST_CHOICES = 1 << 40


@dataclass(frozen=True, eq=False)
class Paths:
    """The links of each pair: ``counts`` [pairs] of them, or NO_ROUTE; ``links`` are places in those of the table."""

    counts: Ints
    links: Ints

    @cached_property
    def lengths(self) -> Ints:
        """The number of links of each pair; 0 where there is no route."""
        return np.maximum(self.counts, 0)

    @cached_property
    def starts(self) -> Ints:
        """The place in ``links`` of the first link of each pair."""
        return np.cumsum(self.lengths) - self.lengths

    def over(self, pairs: Ints) -> tuple[Ints, Ints]:
        """Return the links of ``pairs`` [k], given by place: for each link its pair's place, and the link, both [m]."""
        lengths = self.lengths[pairs]
        pair, place = np.repeat(np.arange(len(pairs)), lengths), np.arange(int(lengths.sum()))
        place += np.repeat(self.starts[pairs] - (np.cumsum(lengths) - lengths), lengths)
        return pair, self.links[place]


class RouteTable:
    """Routes among ``nodes`` nodes, the first ``size`` of which are ranks; ``Topology.routes`` are those of a cluster.

    A link is its ends, of which the tails ascend, its bandwidth and its latency.
    """

    def __init__(self, size: int, nodes: int, links: Sequence[tuple[int, int, float, float]]) -> None:
        self.size, self._nodes = size, nodes
        self._tail = np.array([tail for tail, _, _, _ in links], dtype=np.int64)
        self._head = np.array([head for _, head, _, _ in links], dtype=np.int64)
        self._width = np.array([bandwidth for _, _, bandwidth, _ in links], dtype=np.float64)
        self._length = np.array([length_of(latency) for _, _, _, latency in links], dtype=np.int64)
        self._groups = np.flatnonzero(np.r_[True, self._tail[1:] != self._tail[:-1]]) if nodes > 1 else self._tail
        self._tails = self._tail[self._groups]

    def paths(self, src: Ints, dst: Ints) -> Paths:
        """Return the routes from ``src[i]`` to ``dst[i]``; ranks are 0 to size - 1."""
        counts = np.where(src == dst, 0, NO_ROUTE)
        pairs: list[Ints] = []
        links: list[Ints] = []
        for pair, link in self._hops(src, dst):
            pairs.append(pair)
            links.append(link)
        if not pairs:
            return Paths(counts, np.zeros(0, np.int64))
        of, on = np.concatenate(pairs), np.concatenate(links)
        found = np.bincount(of, minlength=len(src))
        return Paths(np.where(found > 0, found, counts), on[np.argsort(of, kind="stable")])

    def _hops(self, src: Ints, dst: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield (pairs, links), each [n], for every place on the way."""
        if not len(self._tail):
            return
        wanted = np.flatnonzero(src != dst)
        wanted = wanted[np.argsort(dst[wanted], kind="stable")]
        targets = np.unique(dst[wanted])
        chunk = max(1, MOST_CELLS // max(len(self._tail), self._nodes))
        for start in range(0, len(targets), chunk):
            chosen = targets[start : start + chunk]
            mine = wanted[slice(*np.searchsorted(dst[wanted], [chosen[0], chosen[-1] + 1]))]
            yield from self._chunk(mine, src[mine], np.searchsorted(chosen, dst[mine]), chosen)

    def _chunk(self, pairs: Ints, src: Ints, column: Ints, targets: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield the hops of ``pairs``, which are sorted by their ``targets[column]``, by the width of their ways."""
        widths = self._widest(targets)[src, column]
        for width in np.unique(widths[widths > 0]).tolist():
            wide = np.flatnonzero(self._width >= width)
            distance = self._distances(targets, wide)
            onward = distance[self._head[wide]]
            for j in np.unique(column[widths == width]).tolist():
                mine = slice(*np.searchsorted(column, [j, j + 1]))
                these = mine.start + np.flatnonzero(widths[mine] == width)
                shortest = onward[:, j] + self._length[wide] == distance[self._tail[wide], j]
                through = (self._head[wide] >= self.size) | (self._head[wide] == targets[j])
                fit = wide[shortest & through & (onward[:, j] < _FAR)]
                yield from self._walk(pairs[these], src[these], int(targets[j]), fit)

    def _walk(self, pairs: Ints, node: Ints, target: int, fit: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Follow the links ``fit`` from each of ``node`` to ``target``, one hop at a time."""
        ways = np.bincount(self._tail[fit], minlength=self._nodes)
        starts = np.cumsum(ways) - ways
        choices, place = np.ones_like(node), np.zeros_like(node)
        while len(node):
            place = place + np.where(ways[node] > 1, target // choices, 0)
            link = fit[starts[node] + place % ways[node]]
            yield pairs, link
            choices = np.minimum(choices * ways[node], _MOST_CHOICES)
            node = self._head[link]
            going = node != target
            pairs, node, choices, place = pairs[going], node[going], choices[going], place[going]

    def _widest(self, targets: Ints) -> Floats:
        """Return [nodes, targets]: the bandwidth of the widest way; 0 where there is no way."""
        widest = np.zeros((self._nodes, len(targets)))
        columns = np.arange(len(targets))
        while True:
            through = widest.copy()
            through[: self.size] = 0
            through[targets, columns] = np.inf
            over = np.minimum(self._width[:, None], through[self._head])
            found = np.maximum.reduceat(over, self._groups, axis=0)
            if (found == widest[self._tails]).all():
                return widest
            widest[self._tails] = found

    def _distances(self, targets: Ints, wide: Ints) -> Ints:
        """Return [nodes, targets]: the length of the shortest way over the links ``wide``."""
        distance = np.full((self._nodes, len(targets)), _FAR)
        columns = np.arange(len(targets))
        groups = np.flatnonzero(np.r_[True, self._tail[wide[1:]] != self._tail[wide[:-1]]])
        tails = self._tail[wide[groups]]
        distance[targets, columns] = 0
        while True:
            through = distance.copy()
            through[: self.size] = _FAR
            through[targets, columns] = 0
            over = np.minimum(through[self._head[wide]] + self._length[wide, None], _FAR)
            found = np.minimum.reduceat(over, groups, axis=0)
            before = distance[tails]
            distance[tails] = found
            distance[targets, columns] = 0
            if (distance[tails] == before).all():
                return distance


def length_of(latency: float) -> int:
    """Return the length of ``link`` in a distance."""
    return _HOP + round(latency * 1e12)
