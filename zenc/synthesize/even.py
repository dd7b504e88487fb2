"""Trees between groups of ranks, such as machines, whose cards do not divide them: each message has one part.

There a packing has some more of a root on one pair of ranks than on another; fair messages then end at different times,
and links idle. So into every other group each part of a root goes once, from a rank of its group to one there, which
tells the others. The pairs that do this are sought one by one, for links that all have as much: a few parts are enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, permutations, product
from math import ceil
from time import process_time

import numpy as np

from zenc.synthesize.arborescence import Floats, Ints, cheapest, depths, lifted, shallow
from zenc.synthesize.loads import DOWN, EVEN, GOOD, BranchRoutes, OrbitLoads, Packing, Progress, WeightedTree
from zenc.synthesize.packing import balanced, better, in_whole_parts, seconds_for, symmetric
from zenc.synthesize.rotation import Rotation, rotations
from zenc.topology.bound import Bound
from zenc.topology.model import Topology

MOST_NAMES, _MOST_EACH = 40_000, 8
"""Most ranks that the text of all trees may name, and most parts of a root."""
_MANY, _PARTS, _NAMES, _ENOUGH = 20, (4, 8, 16), 18_000, 0.85
"""Kinds of ranks beyond which trees are made one by one first; the parts of a root that these have, and the ranks that
their text may name; and the share at which no linear program is asked, which takes minutes for 64 kinds."""
_LIGHT = 0.5
"""The share by which trees in groups count while ends are sought: others of a group can relieve a busy rank."""
_POWERS = (4, 4, 8, 8, 16, 16, 32, 32), (4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 32, 64, 64, 64)
"""Powers in which loads count, round by round, in the first try and in others: at last the greatest loads count."""
_TRIES, _MESSAGES, _FEW = 12, 1200, 4
"""Limits of tries, of the messages in those for one number of parts, and of few parts: more come after a few tries."""


def pack(
    topology: Topology, bound: Bound, way: str = DOWN, progress: Progress = lambda _: None, share: float = 1.0
) -> Packing:
    """Return trees that come near to ``bound``; ``way``: results go down them, or sums up, or both.

    They are sought for a ``share`` of the usual seconds.
    """
    routes, best = BranchRoutes(topology, bound, way), None
    end = process_time() + share * seconds_for(topology)
    for packing in one_by_one(routes.rotated(next(rotations(topology, routes.kinds))), progress):
        best = better(routes, packing, best, 0.01)
        if best.piped >= GOOD:
            break
    if best is not None and best.piped >= _ENOUGH:
        return best
    alike = symmetric(routes, topology, end, progress)
    for packing in chain([next(alike)], across(routes, progress), alike):
        best = better(routes, packing, best, 0.01)
        if best.piped >= GOOD or process_time() > end:
            break
    assert best is not None, "every rank can be reached from every other"
    return best


def across(routes: BranchRoutes, progress: Progress) -> Iterator[Packing]:
    """Yield packings of trees that enter each group of ranks once, of few parts a root to many."""
    size, groups = routes.size, groups_of(routes.kinds)
    if not 1 < len(groups) < size or not (routes.ways | np.eye(size, dtype=bool)).all():
        return
    loads = routes.rotated(Rotation((size,), (False,)))
    most, moves = min(_MOST_EACH, MOST_NAMES // size**2), size * (len(groups) - 1)
    tries = [
        (each, seed)
        for seed in range(1, _TRIES if len(groups) > 2 else 1)
        for each in range(1, _FEW + 1)
        if seed * each * moves <= _MESSAGES
    ]
    first = [(each, 0) for each in range(1, most + 1)]
    for each, seed in [*first[:_FEW], *tries[:_FEW], *first[_FEW:], *tries[_FEW:]]:
        progress(f"trees: {each} parts of a root, from group to group")
        trees = Crossings(loads, groups, each, seed).trees()
        deepest = max(int(depths(tree.parent).max()) for tree in trees)
        yield in_whole_parts(loads, trees, each)
        for deeper in range(2 if seed == 0 else 0):
            yield in_whole_parts(loads, balanced(loads, deepest + deeper, trees, each), each)


def one_by_one(loads: OrbitLoads, progress: Progress) -> Iterator[Packing]:
    """Yield packings of trees that are made anew, one by one, where links are the least full; for ranks of many kinds.

    The cheapest tree by prices that grow exponentially with the load of a link comes near to a linear program's
    (Garg and Koenemann 1998), which is slow then.
    """
    roots, most = loads.rotation.roots, _NAMES // loads.routes.size**2 if len(loads.rotation.roots) > _MANY else 0
    near = [loads.routes.hops(root) + 1 for root in roots]
    for each in sorted({min(each, most) for each in _PARTS if most}):
        progress(f"trees: {each} parts of a root, one by one")
        once, now = np.full(loads.links, 1e-9), np.zeros(loads.links)
        np.maximum.at(once, loads.link, loads.load / each)
        trees, random = dict[tuple[int, int], Ints](), np.random.default_rng(0)
        for power, part in product(_POWERS[0][2::2], range(each)):
            for place in random.permutation(len(roots)).tolist():
                if (part, place) in trees:
                    now -= loads.of_tree(trees[part, place]) / each
                cost = loads.cost(((now + once) ** power - now**power) / once + 1e-12)
                trees[part, place] = shallow(cost, roots[place], near[place])
                now += loads.of_tree(trees[part, place]) / each
        weighted = [WeightedTree(roots[place], tree, 1) for (_, place), tree in trees.items()]
        yield in_whole_parts(loads, sorted(weighted, key=lambda tree: tree.root), each)


def groups_of(kinds: Floats) -> list[Ints]:
    """Return the ranks of each group, between which no routes are of the narrowest of ``kinds`` [ranks, ranks]."""
    near = (kinds > kinds[kinds > 0].min()) | np.eye(len(kinds), dtype=bool)
    group = np.arange(len(kinds))
    while (group != (lower := np.where(near, group, len(kinds)).min(axis=1))).any():
        group = lower
    return [np.flatnonzero(group == first) for first in np.unique(group)]


class Crossings:
    """Messages between ``groups``, each of one of ``each`` parts of a root, and what these and the trees below load."""

    def __init__(self, loads: OrbitLoads, groups: Sequence[Ints], each: int, seed: int) -> None:
        self.groups, self.each, size = groups, each, loads.routes.size
        self.powers, self.noise = _POWERS[seed > 0], 1e-2 if seed else 1e-6
        first = np.searchsorted(loads.of, np.arange(size**2 + 1))
        entry = loads.of, np.arange(len(loads.of)) - first[loads.of]
        link = np.full((size**2, int(np.diff(first).max())), loads.links)
        load = np.zeros(link.shape)
        link[entry], load[entry] = loads.link, loads.load / each
        self.link, self.load = link.reshape(size, size, -1), load.reshape(size, size, -1)
        self.inner = _trees_in(groups, loads.cost(np.ones(loads.links)))
        self.below = np.pad([_LIGHT * loads.of_tree(parent) / each for parent in self.inner], ((0, 0), (0, 1)))
        self.now = self.below.sum(axis=0) * each
        self.sent, self.random = np.zeros((size, size)), np.random.default_rng(seed)

    def trees(self) -> list[WeightedTree]:
        """Return trees of one part each, by root: the tree in its group, and into each other group one message."""
        ways = list(permutations(range(len(self.groups)), 2))
        ends = dict(zip(ways, self._sought(ways), strict=True))
        of = {int(rank): (a, place) for a, group in enumerate(self.groups) for place, rank in enumerate(group)}
        trees = []
        for root, part in product(range(len(self.inner)), range(self.each)):
            parent, (a, place) = self.inner[root].copy(), of[root]
            for b, group in enumerate(self.groups):
                if b != a:
                    above, below = ends[a, b][place * self.each + part]
                    parent[group] = self.inner[below][group]
                    parent[below] = above
            trees.append(WeightedTree(root, parent, 1))
        return trees

    def _sought(self, ways: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
        """Return the ends of the messages from group to group, ``ways``, in order."""
        of = [way for way in ways for _ in range(len(self.groups[way[0]]) * self.each)]
        ends = [self._added(way, self.powers[0]) for way in of]
        for power in self.powers:
            if self.now.max() < 1 / EVEN:
                break
            for place in self.random.permutation(len(of)).tolist():
                self._add(ends[place], -1)
                ends[place] = self._added(of[place], power)
        return [sorted(end for end, its in zip(ends, of, strict=True) if its == way) for way in ways]

    def _added(self, way: tuple[int, int], power: int) -> tuple[int, int]:
        """Add the message from group to group after which links are the least full; return its ends."""
        above, below = (self.groups[place] for place in way)
        pairs = np.ix_(above, below)
        once = 1 / ceil(self.each / len(below))

        def more(now: Floats, by: Floats | float) -> Floats:
            return np.asarray((now + by) ** power - now**power)

        cost = more(self.now[self.link[pairs]], self.load[pairs]).sum(axis=2) + more(self.sent[pairs] * once, once)
        cost += more(self.now, self.below[below]).sum(axis=1)
        one, other = divmod(int((cost * (1 + self.noise * self.random.random(cost.shape))).argmin()), len(below))
        end = int(above[one]), int(below[other])
        self._add(end, 1)
        return end

    def _add(self, end: tuple[int, int], times: int) -> None:
        self.now[self.link[end]] += times * self.load[end]
        self.now += times * self.below[end[1]]
        self.sent[end] += times


def _trees_in(groups: Sequence[Ints], cost: Floats) -> list[Ints]:
    """Return a tree of each rank [ranks] to those of its group, where moves have ``cost`` [ranks, ranks]."""
    trees = [np.full(len(cost), -1) for _ in cost]
    for group in groups:
        inner = cost[np.ix_(group, group)]
        for place, rank in enumerate(group.tolist()):
            parent = lifted(cheapest(inner, place), inner, 0.3)
            trees[rank][group] = np.where(parent < 0, -1, group[parent])
    return trees
