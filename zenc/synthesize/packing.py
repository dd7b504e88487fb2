"""Packing of trees: from every rank, trees that lead to all others, which together load no link above its bandwidth.

Moves between ranks take the routes of ``zenc.topology.all_pairs``, so what trees load is what the simulator and
``zenc check --topology`` say. A linear program weighs the trees that are known; by the prices of the links the cheapest
tree of each root is found, and joins them while it helps (Dantzig and Wolfe 1960).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

import numpy as np

from zenc.synthesize.arborescence import Floats, Ints, cheapest, depths, lifted, shallow
from zenc.synthesize.bound import Bound
from zenc.synthesize.rotation import Rotation, rotations
from zenc.synthesize.simplex import heaviest
from zenc.topology.model import Topology

NEAR = 0.995
"""The share of the bound at which nothing better is sought."""
_GOOD = 0.94
"""The share of the bound at which less symmetric trees are not tried."""
MOST_ROUNDS = 60
MOST_PARTS = 32
"""Most parts of a root, before chunks."""
MOST_ALL_PARTS = 32_768
"""Most parts of all ranks, chunks counted."""
MOST_CHUNKS = 256
_FILL = 30
"""Chunks for each step until all depths of a tree are busy: its links are idle for a thirtieth of the time at most."""


@dataclass(frozen=True, slots=True, eq=False)
class WeightedTree:
    """A tree from ``root``: the ``parent`` [ranks] of each rank; it carries ``parts`` of its root's parts."""

    root: int
    parent: Ints
    parts: int


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Trees of one root of each kind, which the rotations take to all others.

    ``each``: the parts of a root. ``share``: of the bound, as the loads of the links have it.
    """

    rotation: Rotation
    trees: tuple[WeightedTree, ...]
    each: int
    share: float

    @property
    def depth(self) -> int:
        """The depth of the deepest tree."""
        return max(int(depths(tree.parent).max()) for tree in self.trees)

    @property
    def chunks(self) -> int:
        """The chunks in which its trees carry a large tensor."""
        most = MOST_ALL_PARTS // (len(self.trees[0].parent) * self.each)
        return max(1, min(_FILL * (self.depth - 1), MOST_CHUNKS, most))

    @property
    def piped(self) -> float:
        """The share of the bound if every step took as long: chunks go one after another through all depths."""
        return self.share * self.chunks / (self.chunks + self.depth - 1)


class Routes:
    """The links that each move between ranks loads, and those of all moves that rotations make of it."""

    def __init__(self, topology: Topology, bound: Bound) -> None:
        size = topology.size
        self.size = size
        paths = topology.routes.paths(*np.divmod(np.arange(size * size), size))
        self.pair, self.link = paths.over(np.arange(size * size))
        self.ways = paths.counts.reshape(size, size) > 0
        self.width = np.array([link.bandwidth for link in topology.links])
        narrowest = np.full(size * size, np.inf)
        np.minimum.at(narrowest, self.pair, self.width[self.link])
        hops = np.bincount(self.pair, minlength=size * size)
        self.kinds = np.where(self.ways, narrowest.reshape(size, size) + hops.reshape(size, size), 0.0)
        self.share = float(bound.rate) / self.width
        """The share of each link that a byte a second takes, where every rank sends at the bound: [links]."""

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
        return OrbitLoads(self, rotation, orbit.reshape(self.size, self.size), len(kinds), of, link, counts * self.share[link])


@dataclass
class OrbitLoads:
    """Moves between ranks that are alike, as orbits: ``orbit`` [ranks, ranks] of each, of ``count``.

    Orbit ``of[i]`` takes the share ``load[i]`` of ``link[i]``.
    """

    routes: Routes
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

    def of_tree(self, parent: Ints) -> Floats:
        """Return the share of each link [links] that a tree and its images take."""
        nodes = np.flatnonzero(parent >= 0)
        times = np.bincount(self.orbit[parent[nodes], nodes], minlength=self.count)
        return np.bincount(self.link, self.load * times[self.of], minlength=len(self.routes.width))


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
        chosen = [i for i, depth in enumerate(self.depth) if most is None or depth <= most]
        table = np.stack([self.columns[i] for i in chosen], axis=1)
        rows = np.flatnonzero(table.any(axis=1))
        rounded = np.round(table[rows], 9)
        _, first = np.unique(rounded, axis=0, return_index=True)
        rows = rows[np.sort(first)]
        rate, some, of_roots, of_links = heaviest([self.roots[i] for i in chosen], table[rows], self._count)
        weights, prices = np.zeros(len(self.roots)), np.zeros(len(table))
        weights[chosen], prices[rows] = some, of_links
        return rate, weights, of_roots, prices

    @property
    def _count(self) -> int:
        return len(self.loads.rotation.roots)


def pack(topology: Topology, bound: Bound, seconds: float = 60.0, progress: Callable[[str], None] = lambda _: None) -> Packing:
    """Return trees that come as near to ``bound`` as is found within ``seconds`` or a little more."""
    routes = Routes(topology, bound)
    best: Packing | None = None
    end = monotonic() + seconds
    for rotation in rotations(topology, routes.kinds):
        progress(f"trees: {len(rotation.roots)} kinds of ranks")
        found = _packed(routes.rotated(rotation), end, progress)
        if found is not None and (best is None or found.piped > best.piped + 0.01):
            best = found
        if best is not None and (best.piped >= _GOOD or monotonic() > end):
            break
    assert best is not None, "every rank can be reached from every other"
    return best


def _packed(loads: OrbitLoads, end: float, progress: Callable[[str], None]) -> Packing | None:
    rotation, pool = loads.rotation, _Pool(loads)
    roots = rotation.roots
    nearest = [loads.routes.hops(root) for root in roots]
    used = np.zeros(len(loads.routes.width))
    rate, rounds, prices = 0.0, 0, np.ones(len(used))
    for rounds in range(MOST_ROUNDS):
        cost = loads.cost(prices / max(prices.sum(), 1e-300) + 1e-6 / len(prices))
        fresh = 0
        for place, root in enumerate(roots):
            parent = cheapest(cost, root)
            if (parent < 0).sum() > 1:
                return None
            fresh += pool.add(place, shallow(cost, root, nearest[place] + rounds % 4))
            for slack in (0.3, 0.0):
                fresh += pool.add(place, lifted(parent, cost, slack))
            used += pool.columns[-1] / len(roots)
        if rounds % 3 == 2 or rounds < 2:
            rate, weights, _, links = pool.weighed()
            progress(f"trees: {len(pool.roots)} tried, {rate:.1%} of the bound")
            if rate >= NEAR or (not fresh and rounds > 12) or monotonic() > end:
                break
            prices = links
        else:  # what the trees of all rounds have loaded, which moves more calmly than the prices
            prices = np.exp(8.0 * (used / used.max() - 1.0)) + (links if rounds % 3 else 0)
    return _rounded(pool)


def _rounded(pool: _Pool) -> Packing:
    """Return the packing of the best depth, with whole numbers of parts."""
    best: Packing | None = None
    whole = pool.weighed()[0]
    for most in sorted(set(pool.depth)):
        present = {root for root, depth in zip(pool.roots, pool.depth, strict=True) if depth <= most}
        if len(present) < len(pool.loads.rotation.roots):
            continue
        rate, weights, _, _ = pool.weighed(most)
        packing = _in_parts(pool, weights)
        if best is None or packing.piped > best.piped:
            best = packing
        if rate >= 0.998 * whole:
            break
    assert best is not None
    return best


def _in_parts(pool: _Pool, weights: Floats) -> Packing:
    best: Packing | None = None
    roots = pool.loads.rotation.roots
    for each in range(1, MOST_PARTS + 1):
        parts = np.zeros(len(weights), dtype=np.int64)
        for root in set(pool.roots):
            mine = np.flatnonzero(np.array(pool.roots) == root)
            parts[mine] = _apportioned(weights[mine], each)
        load = sum(pool.columns[i] * (parts[i] / each) for i in np.flatnonzero(parts))
        share = 1 / float(np.max(load))
        order = sorted(np.flatnonzero(parts), key=lambda i: (pool.roots[i], -parts[i]))
        trees = tuple(WeightedTree(roots[pool.roots[i]], pool.parents[i], int(parts[i])) for i in order)
        found = Packing(pool.loads.rotation, trees, each, share)
        if best is None or found.piped > best.piped * 1.003:
            best = found
    assert best is not None
    return best


def _apportioned(weights: Floats, each: int) -> Ints:
    """Return ``each`` parts shared out by ``weights``, by largest remainders."""
    exact = weights / weights.sum() * each
    parts = np.floor(exact + 1e-9).astype(np.int64)
    order = np.argsort(parts - exact, kind="stable")
    parts[order[: each - int(parts.sum())]] += 1
    return parts
