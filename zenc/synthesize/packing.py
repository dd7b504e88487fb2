"""Packing of trees: from every rank, trees that lead to all others, which together load no link above its bandwidth.

Moves between ranks take the routes of ``zenc.topology.all_pairs``, so what trees load is what the simulator and
``zenc check --topology`` say. A linear program weighs the trees that are known; by the prices of the links the cheapest
tree of each root is found, and joins them while it helps (Dantzig and Wolfe 1960).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from time import process_time

import numpy as np

from zenc.synthesize.arborescence import Floats, Ints, cheapest, depths, heights, lifted, shallow
from zenc.synthesize.rotation import Rotation, rotations
from zenc.synthesize.simplex import heaviest
from zenc.topology.bound import Bound
from zenc.topology.model import Topology

NEAR = 0.995
"""The share of the bound at which nothing better is sought."""
SECONDS = 4.0
"""Seconds of the processor for which trees are sought for 64 ranks or fewer; more ranks have more."""
_GOOD, _GREAT = 0.955, 0.97
"""The shares of the bound, with the time of chunks, at which less symmetry, and more parts, are not tried."""
DOWN, UP, BOTH = "down", "up", "both"
MOST_ROUNDS = 60
EACH = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 32)
"""Numbers of parts of a root that are tried, before chunks."""
_SHARP, _NEARLY, _SWEEPS = 32, 0.98, 4
"""The power in which loads count, so that the greatest do; the share of the greatest that is great; rounds of moves."""
MOST_CELLS = 1 << 22
"""Most orbits of moves times links for which trees are balanced one by one."""
MOST_ALL_PARTS = 77_824
"""Most parts of all ranks, chunks counted."""
MOST_CHUNKS = 304
_FILL = 60
"""Chunks for each that the links could carry while they wait for the first ones: they wait a sixtieth of the time."""


@dataclass(frozen=True, slots=True, eq=False)
class WeightedTree:
    """A tree from ``root``: the ``parent`` [ranks] of each rank; it carries ``parts`` of its root's parts."""

    root: int
    parent: Ints
    parts: int


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Trees of one root of each kind, which the rotations take to all others.

    ``each``: the parts of a root. ``share``: of the bound, as the loads of the links have it. ``waiting``: the chunks
    that the busiest link could carry while it waits for the first ones, and others for the last. ``ceiling``: the share
    that no trees of this ``rotation`` exceed, since a message between two ranks takes one route.
    """

    rotation: Rotation
    trees: tuple[WeightedTree, ...]
    each: int
    share: float
    waiting: float
    ceiling: float = 1.0

    @property
    def depth(self) -> int:
        """The depth of the deepest tree."""
        return max(int(depths(tree.parent).max()) for tree in self.trees)

    @property
    def chunks(self) -> int:
        """The chunks in which its trees carry a large tensor."""
        most = MOST_ALL_PARTS // (len(self.trees[0].parent) * self.each)
        return max(1, min(max(ceil(_FILL * self.waiting), 10 * (self.depth - 1)), MOST_CHUNKS, most))

    @property
    def piped(self) -> float:
        """The share of the bound if all ranks begin each step together, in which one more chunk goes on by a branch."""
        return self.share * self.chunks / (self.chunks + self.waiting)


class BranchRoutes:
    """The links that each branch between ranks loads: ``down`` for results, ``up`` for sums, or both at once."""

    def __init__(self, topology: Topology, bound: Bound, way: str = DOWN) -> None:
        size = topology.size
        self.size = size
        self.halves = [BranchRoutes(topology, bound, each) for each in (UP, DOWN)] if way == BOTH else []
        above, below = np.divmod(np.arange(size * size), size)
        ends = {DOWN: [(above, below)], UP: [(below, above)], BOTH: [(above, below), (below, above)]}[way]
        every = [topology.routes.paths(*each) for each in ends]
        found = [paths.over(np.arange(size * size)) for paths in every]
        self.pair, self.link = (np.concatenate(column) for column in zip(*found, strict=True))
        self.ways = np.all([paths.counts > 0 for paths in every], axis=0).reshape(size, size)
        self.width = np.array([link.bandwidth for link in topology.links])
        narrowest = np.full(size * size, np.inf)
        np.minimum.at(narrowest, self.pair, self.width[self.link])
        hops = np.bincount(self.pair, minlength=size * size)
        self.kinds = np.where(self.ways, narrowest.reshape(size, size) + hops.reshape(size, size), 0.0)
        self.share = float(bound.rate) / max(1, len(self.halves)) / self.width
        """The share of each link that a branch takes, where every rank sends at the bound: [links]."""

    def hops(self, root: int) -> Ints:
        """Return the moves from ``root`` to each rank [ranks], by way of others where it has no route."""
        hops, reached = np.full(self.size, -1), np.zeros(self.size, dtype=bool)
        fresh, count = np.arange(self.size) == root, 0
        while fresh.any():
            hops[fresh], reached, count = count, reached | fresh, count + 1
            fresh = self.ways[fresh].any(axis=0) & ~reached
        return hops

    def rotated(self, rotation: Rotation) -> OrbitLoads:
        """Return the loads of moves that are made in all rotations at once."""
        images = rotation.images
        orbit = np.full(self.size * self.size, self.size * self.size)
        for image in images:
            orbit = np.minimum(orbit, (image[:, None] * self.size + image[None, :]).reshape(-1))
        kinds, orbit = np.unique(orbit, return_inverse=True)
        links = len(self.width)
        code, counts = np.unique(orbit[self.pair] * links + self.link, return_counts=True)
        of, link = np.divmod(code, links)
        return OrbitLoads(
            self, rotation, orbit.reshape(self.size, self.size), len(kinds), of, link, counts * self.share[link]
        )


@dataclass
class OrbitLoads:
    """Moves between ranks that are alike, as orbits: ``orbit`` [ranks, ranks] of each, of ``count``.

    Orbit ``of[i]`` takes the share ``load[i]`` of ``link[i]``.
    """

    routes: BranchRoutes
    rotation: Rotation
    orbit: Ints
    count: int
    of: Ints
    link: Ints
    load: Floats

    def cost(self, prices: Floats) -> Floats:
        """Return what each move costs, [ranks, ranks], where links have ``prices``; infinite without a way."""
        cost = np.bincount(self.of, prices[self.link] * self.load, minlength=self.count)
        return np.where(self.routes.ways, cost[self.orbit], np.inf)

    @cached_property
    def halves(self) -> list[OrbitLoads]:
        """The loads of sums that go up, and of results that come down, where both are at once."""
        return [half.rotated(self.rotation) for half in self.routes.halves]

    @property
    def is_small(self) -> bool:
        """Return whether ``table`` is of a size to work with."""
        return self.count * len(self.routes.width) <= MOST_CELLS

    @cached_property
    def table(self) -> Floats:
        """The share that each orbit takes of each link, without links that are loaded alike: [some links, orbits]."""
        table = np.zeros((len(self.routes.width), self.count))
        table[self.link, self.of] = self.load
        return np.unique(np.round(table[table.any(axis=1)], 9), axis=0)

    def of_orbits(self, parent: Ints) -> Floats:
        """Return the share of each link of ``table`` that a tree and its images take."""
        nodes = np.flatnonzero(parent >= 0)
        return np.asarray(self.table[:, self.orbit[parent[nodes], nodes]].sum(axis=1))

    def of_levels(self, parent: Ints, most: int) -> Floats:
        """Return the shares of links that branches of each depth up to ``most`` take, [most, links].

        Where sums go up at once there are twice as many, in the order in which a chunk takes them.
        """
        if self.halves:
            up, down = (half.of_levels(parent, most) / 2 for half in self.halves)
            return np.concatenate((up[::-1], down))
        depth = depths(parent)
        return np.stack([self.of_tree(np.where(depth == level, parent, -1)) for level in range(1, most + 1)])

    def of_tree(self, parent: Ints) -> Floats:
        """Return the share of each link [links] that a tree and its images take."""
        nodes = np.flatnonzero(parent >= 0)
        times = np.bincount(self.orbit[parent[nodes], nodes], minlength=self.count)
        return np.asarray(
            np.bincount(self.link, self.load * times[self.of], minlength=len(self.routes.width)), np.float64
        )


@dataclass
class _Pool:
    """The trees that are known, with their loads of those links that are loaded."""

    loads: OrbitLoads
    roots: list[int] = field(default_factory=list)
    parents: list[Ints] = field(default_factory=list)
    columns: list[Floats] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)
    known: set[bytes] = field(default_factory=set)

    def add(self, root: int, parent: Ints) -> bool:
        """Add a tree of the root in place ``root``; return whether it is new."""
        key = parent.astype(np.int16).tobytes()
        if key in self.known:
            return False
        self.known.add(key)
        self.roots.append(root)
        self.parents.append(parent)
        self.columns.append(self.loads.of_tree(parent))
        self.depth.append(int(depths(parent).max()))
        return True

    def weighed(self, most: int | None = None) -> tuple[float, Floats, Floats, Floats]:
        """Return the heaviest packing of trees not deeper than ``most``: as ``heaviest`` does, of all trees."""
        chosen, rows, table = self.table(most)
        rate, some, of_roots, of_links = heaviest([self.roots[i] for i in chosen], table, self._count)
        weights, prices = np.zeros(len(self.roots)), np.zeros(len(self.loads.routes.width))
        weights[chosen], prices[rows] = some, of_links
        return rate, weights, of_roots, prices

    def table(self, most: int | None = None) -> tuple[list[int], Ints, Floats]:
        """Return the trees not deeper than ``most``, links that are not loaded alike, and their loads of these."""
        chosen = [i for i, depth in enumerate(self.depth) if most is None or depth <= most]
        table = np.stack([self.columns[i] for i in chosen], axis=1)
        rows = np.flatnonzero(table.any(axis=1))
        _, first = np.unique(np.round(table[rows], 9), axis=0, return_index=True)
        rows = rows[np.sort(first)]
        return chosen, rows, table[rows]

    @property
    def _count(self) -> int:
        return len(self.loads.rotation.roots)


def pack(
    topology: Topology, bound: Bound, way: str = DOWN, progress: Callable[[str], None] = lambda _: None
) -> Packing:
    """Return trees that come near to ``bound``: results go ``down`` them, sums ``up``, or ``both`` at once."""
    routes = BranchRoutes(topology, bound, way)
    end = process_time() + SECONDS * max(1.0, topology.size / 64)
    best: Packing | None = None
    for rotation in rotations(topology, routes.kinds):
        progress(f"trees: {len(rotation.roots)} kinds of ranks")
        found = _packed(routes.rotated(rotation), end, progress)
        if found is not None and (best is None or found.piped > best.piped + 0.01):
            best = found
        if best is not None and (best.piped >= _GOOD or process_time() > end):
            break
    assert best is not None, "every rank can be reached from every other"
    return best


def _packed(loads: OrbitLoads, end: float, progress: Callable[[str], None]) -> Packing | None:
    rotation, pool = loads.rotation, _Pool(loads)
    roots = rotation.roots
    nearest = [loads.routes.hops(root) for root in roots]
    used = np.zeros(len(loads.routes.width))
    rate, rounds, prices, ceiling = 0.0, 0, np.ones(len(used)), np.inf
    for rounds in range(MOST_ROUNDS):
        cost = loads.cost(prices / max(prices.sum(), 1e-300) + 1e-6 / len(prices))
        fresh, least = 0, 0.0
        for place, root in enumerate(roots):
            parent = cheapest(cost, root)
            if (parent < 0).sum() > 1:
                return None
            least += float(cost[parent[parent >= 0], np.flatnonzero(parent >= 0)].sum())
            fresh += pool.add(place, shallow(cost, root, nearest[place] + rounds % 4))
            for slack in (0.3, 0.0):
                fresh += pool.add(place, lifted(parent, cost, slack))
            used += pool.columns[-1] / len(roots)
        ceiling = min(ceiling, (1 + 1e-6) / least)  # what any prices of the links show: they sum to this
        if rounds % 3 == 2 or rounds < 2:
            rate, _, _, links = pool.weighed()
            progress(f"trees: {len(pool.roots)} tried, {rate:.1%} of the bound")
            if rate >= min(NEAR, 0.999 * ceiling) or (not fresh and rounds > 12):
                break
            prices = links
        else:  # what the trees of all rounds have loaded, which moves more calmly than the prices
            prices = np.exp(8.0 * (used / used.max() - 1.0)) + (links if rounds % 3 else 0)
        if process_time() > end:
            break
    return replace(_rounded(pool, end + 2.0), ceiling=min(ceiling, 1.0))


def _rounded(pool: _Pool, end: float) -> Packing:
    """Return the packing of the best depth, with whole numbers of parts."""
    best: Packing | None = None
    whole = pool.weighed()[0]
    for most in sorted(set(pool.depth)):
        present = {root for root, depth in zip(pool.roots, pool.depth, strict=True) if depth <= most}
        if len(present) < len(pool.loads.rotation.roots):
            continue
        rate, weights, _, _ = pool.weighed(most)
        packing = _in_parts(pool, weights, most, end)
        if best is None or packing.piped > best.piped:
            best = packing
        if rate >= 0.998 * whole or best.piped >= _GREAT:
            break
    assert best is not None
    return best


def _in_parts(pool: _Pool, weights: Floats, most: int, end: float) -> Packing:
    """Return the best of packings with few parts a root to those with many, near to ``weights``."""
    best: Packing | None = None
    loads, of = pool.loads, np.array(pool.roots)
    for each in EACH:
        parts = np.zeros(len(of), dtype=np.int64)
        for root in range(len(loads.rotation.roots)):
            mine = np.flatnonzero(of == root)
            parts[mine] = _apportioned(weights[mine], each)
        order = sorted(np.flatnonzero(parts).tolist(), key=lambda i: (of[i], -parts[i]))
        trees = [WeightedTree(loads.rotation.roots[of[i]], pool.parents[i], int(parts[i])) for i in order]
        if loads.is_small and process_time() < end:
            trees = _balanced(loads, most, trees, each)
        levels = np.asarray(sum(loads.of_levels(tree.parent, most) * (tree.parts / each) for tree in trees))
        share = 1 / float(levels.sum(axis=0).max())
        found = Packing(loads.rotation, tuple(trees), each, share, _waiting(levels))
        if best is None or found.piped > best.piped * 1.003:
            best = found
        if best.piped >= _GREAT:
            break
    assert best is not None
    return best


def _waiting(levels: Floats) -> float:
    """Return ``Packing.waiting``, of the loads [depths, links] that each depth of all trees puts on links."""
    first, last = (np.cumsum(way, axis=0).max(axis=1) for way in (levels, levels[::-1]))
    return float((first[:-1] + last[:-1]).sum() / first[-1]) - (len(levels) - 1)


def _balanced(loads: OrbitLoads, most: int, trees: Sequence[WeightedTree], each: int) -> list[WeightedTree]:
    """Return ``trees`` with nodes moved to other parents, no deeper than ``most``, while that lessens great loads."""
    table, orbit, trees = loads.table, loads.orbit, list(trees)
    load = np.asarray(sum(loads.of_orbits(tree.parent) * (tree.parts / each) for tree in trees))
    for _ in range(_SWEEPS):
        before = float(load.max())
        for place, tree in enumerate(trees):
            parent, weight = tree.parent.copy(), tree.parts / each
            depth, height = depths(parent), heights(parent)
            for node in np.flatnonzero(parent >= 0).tolist():
                now = table[:, orbit[parent[node], node]]
                if not (now[load > _NEARLY * load.max()] > 0).any():
                    continue
                others = np.flatnonzero(
                    (depth <= depth[node]) & (depth + 1 + height[node] <= most) & loads.routes.ways[:, node]
                )
                loads_of = (load - weight * now)[:, None] + weight * table[:, orbit[others, node]]
                best = int((loads_of**_SHARP).sum(axis=0).argmin())
                load = loads_of[:, best]
                if others[best] != parent[node]:
                    parent[node] = others[best]
                    depth, height = depths(parent), heights(parent)
            trees[place] = replace(tree, parent=parent)
        if load.max() > before * (1 - 1e-6):
            break
    return trees


def in_shares(packing: Packing, each: int) -> Packing:
    """Return ``packing`` with ``each`` parts a root, a multiple of those it has; trees have the same shares of them."""
    trees = tuple(replace(tree, parts=tree.parts * (each // packing.each)) for tree in packing.trees)
    return replace(packing, trees=trees, each=each)


def _apportioned(weights: Floats, each: int) -> Ints:
    """Return ``each`` parts shared out by ``weights``, by largest remainders."""
    exact = weights / weights.sum() * each
    parts: Ints = np.floor(exact + 1e-9).astype(np.int64)
    order = np.argsort(parts - exact, kind="stable")
    parts[order[: each - int(parts.sum())]] += 1
    return parts
