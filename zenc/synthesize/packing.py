"""Packing of trees: from every rank, trees that lead to all others, which together load no link above its bandwidth.

A linear program weighs the trees that are known; by the prices of the links the cheapest
tree of each root is found, and joins them while it helps (Dantzig and Wolfe 1960).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import process_time

import numpy as np

from zenc.synthesize.arborescence import Floats, Ints, cheapest, depths, heights, lifted, shallow
from zenc.synthesize.loads import BranchRoutes, OrbitLoads, Packing, Progress, WeightedTree, evenly
from zenc.synthesize.rotation import rotations
from zenc.synthesize.simplex import heaviest
from zenc.topology.model import Topology

NEAR = 0.995
"""The share of the bound at which nothing better is sought."""
SECONDS = 4.0
"""Seconds of the processor for which trees are sought for 64 ranks or fewer; more ranks have more."""
_GREAT = 0.97
"""The share of the bound, with the time of chunks, at which more parts are not tried."""
MOST_ROUNDS = 60
EACH = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 32)
"""Numbers of parts of a root that are tried, before chunks."""
_SHARP, _NEARLY, _SWEEPS = 32, 0.98, 4
"""The power in which loads count, so that the greatest do; the share of the greatest that is great; rounds of moves."""


@dataclass
class Pool:
    """The trees that are known, with their loads of those links that are loaded."""

    loads: OrbitLoads
    roots: list[int] = field(default_factory=list)
    parents: list[Ints] = field(default_factory=list)
    columns: list[Floats] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)
    known: set[bytes] = field(default_factory=set)

    def add(self, root: int, parent: Ints) -> bool:
        """Add a tree of the root in place ``root``, as ``parent`` [nodes]; return whether it is new."""
        key = parent.astype(np.int16).tobytes()
        if key in self.known:
            return False
        self.known.add(key)
        self.roots.append(root)
        self.parents.append(parent)
        self.columns.append(self.loads.of_tree(parent))
        self.depth.append(int(depths(parent).max()))
        return True

    def weighed(self, most: int | None = None) -> tuple[float, Floats, Floats]:
        """Return the rate, weights [trees], prices [links] of the heaviest packing of trees no deeper than ``most``."""
        root, depth = np.array(self.roots), np.array(self.depth)
        chosen = np.flatnonzero(depth <= (most or depth.max()))
        table = np.stack([self.columns[i] for i in chosen], axis=1)
        rows = np.flatnonzero(table.any(axis=1))
        _, first = np.unique(np.round(table[rows], 9), axis=0, return_index=True)
        rows = rows[np.sort(first)]
        rate, some, of_links = heaviest(root[chosen].tolist(), table[rows], root.max() + 1)
        weights, prices = np.zeros(len(root)), np.zeros(self.loads.links)
        weights[chosen], prices[rows] = some, of_links
        return rate, weights, prices

    def trees(self, parts: Ints) -> list[WeightedTree]:
        """Return the trees that have ``parts`` [trees], by roots."""
        order = sorted(np.flatnonzero(parts).tolist(), key=lambda i: (self.roots[i], -parts[i]))
        roots = self.loads.rotation.roots
        return [WeightedTree(roots[self.roots[i]], self.parents[i], int(parts[i])) for i in order]

    def reaches(self, most: int) -> bool:
        """Return whether each root has a tree not deeper than ``most``."""
        near = {root for root, depth in zip(self.roots, self.depth, strict=True) if depth <= most}
        return len(near) == len(self.loads.rotation.roots)


def seconds_for(topology: Topology) -> float:
    """Return the seconds for which trees are sought."""
    return SECONDS * max(1.0, topology.size / 64)


def symmetric(routes: BranchRoutes, topology: Topology, end: float, progress: Progress) -> Iterator[Packing]:
    """Yield packings that may come near to the bound, those of the least kinds of ranks first."""
    most = 0.0
    for rotation in rotations(topology, routes.kinds):
        progress(f"trees: {len(rotation.roots)} kinds of ranks")
        found = filled(routes.rotated(rotation), end, progress)
        if found and found[1] > most + 0.01:
            packing = replace(rounded(found[0], end + 2.0), ceiling=found[1])
            most = max(most, packing.piped)
            yield packing


def better(routes: BranchRoutes, packing: Packing, best: Packing | None, gain: float = 0.0) -> Packing:
    """Return ``packing``, with its fair steps, where it gains over ``best``, and else that one."""
    if best is not None and packing.piped <= best.piped + gain:
        return best
    packing = evenly(packing, routes)
    return packing if best is None or packing.piped > best.piped + gain else best


def filled(loads: OrbitLoads, end: float, progress: Progress) -> tuple[Pool, float] | None:
    """Return trees for a packing, and the share of the bound that none exceeds; None where a rank has no way."""
    rotation, pool = loads.rotation, Pool(loads)
    roots = rotation.roots
    nearest = [loads.routes.hops(root) for root in roots]
    used = np.zeros(loads.links)
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
            rate, _, links = pool.weighed()
            progress(f"trees: {len(pool.roots)} tried, {rate:.1%} of the bound")
            if rate >= min(NEAR, 0.999 * ceiling) or (not fresh and rounds > 12):
                break
            prices = links
        else:  # what the trees of all rounds have loaded, which moves more calmly than the prices
            prices = np.exp(8.0 * (used / used.max() - 1.0)) + (links if rounds % 3 else 0)
        if process_time() > end:
            break
    return pool, min(ceiling, 1.0)


def rounded(pool: Pool, end: float) -> Packing:
    """Return the packing of the best depth, with whole numbers of parts."""
    best: Packing | None = None
    whole = pool.weighed()[0]
    for most in filter(pool.reaches, sorted(set(pool.depth))):
        rate, weights, _ = pool.weighed(most)
        packing = _in_parts(pool, weights, most, end)
        if best is None or packing.piped > best.piped:
            best = packing
        if rate >= 0.998 * whole or best.piped >= _GREAT or process_time() > end:
            break
    assert best is not None
    return best


def _in_parts(pool: Pool, weights: Floats, most: int, end: float) -> Packing:
    """Return the best of packings with few parts a root to those with many, near to ``weights``."""
    best: Packing | None = None
    of = np.array(pool.roots)
    for each in EACH:
        parts = np.zeros(len(of), dtype=np.int64)
        for root in range(len(pool.loads.rotation.roots)):
            mine = np.flatnonzero(of == root)
            parts[mine] = _apportioned(weights[mine], each)
        trees = pool.trees(parts)
        if process_time() < end:
            trees = balanced(pool.loads, most, trees, each)
        found = in_whole_parts(pool.loads, trees, each)
        if best is None or found.piped > best.piped * 1.003:
            best = found
        if best.piped >= _GREAT:
            break
    assert best is not None
    return best


def in_whole_parts(loads: OrbitLoads, trees: Sequence[WeightedTree], each: int) -> Packing:
    """Return the packing of ``trees``, which have ``each`` parts of every root."""
    most = max(int(depths(tree.parent).max()) for tree in trees)
    levels = np.asarray(sum(loads.of_levels(tree.parent, most) * (tree.parts / each) for tree in trees))
    share = 1 / float(levels.sum(axis=0).max())
    return Packing(loads.rotation, tuple(trees), each, share, _waiting(levels))


def _waiting(levels: Floats) -> float:
    """Return ``Packing.waiting``, of the loads [depths, links] that each depth of all trees puts on links."""
    first, last = (np.cumsum(way, axis=0).max(axis=1) for way in (levels, levels[::-1]))
    return float((first[:-1] + last[:-1]).sum() / first[-1]) - (len(levels) - 1)


def balanced(loads: OrbitLoads, most: int, trees: Sequence[WeightedTree], each: int) -> list[WeightedTree]:
    """Return ``trees`` with nodes moved to other parents, no deeper than ``most``, while that lessens great loads."""
    if not loads.is_small:
        return list(trees)
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


def _apportioned(weights: Floats, each: int) -> Ints:
    """Return ``each`` parts shared out by ``weights``, by largest remainders."""
    exact = weights / weights.sum() * each
    parts: Ints = np.floor(exact + 1e-9).astype(np.int64)
    order = np.argsort(parts - exact, kind="stable")
    parts[order[: each - int(parts.sum())]] += 1
    return parts
