"""Messages that share links fairly, and keep them busy to the end of a step: those between narrow ends are of one part.

Where the cards of a machine do not divide its ranks, a packing has some more of a root on one pair of ranks than on
another. Fair messages then end at different times, and links idle. With few parts a root, at most one of each between
two ranks, all that share a narrow link have the same rate. A linear program that knows this still cuts trees in
fractions; so the trees of which it has whole parts are taken, then the largest fraction, and it weighs the others anew.
"""

from __future__ import annotations

from itertools import product
from time import process_time

import numpy as np

from zenc.synthesize.arborescence import Floats, Ints, cheapest, depths, lifted, shallow
from zenc.synthesize.loads import DOWN, BranchRoutes, Packing, Progress, WeightedTree
from zenc.synthesize.packing import GOOD, Pool, balanced, better, filled, in_whole_parts, seconds_for
from zenc.synthesize.packing import packed as first_packed
from zenc.topology.bound import Bound
from zenc.topology.model import Topology

FEW = (1, 3, 4, 2, 6, 5, 7, 8)
"""Numbers of parts of a root that are tried."""
MOST_ROOTS = 320
"""Most ranks, times their kinds, for which that ends in time."""


def pack(topology: Topology, bound: Bound, way: str = DOWN, progress: Progress = lambda _: None) -> Packing:
    """Return trees that come near to ``bound``; ``way``: results go down them, or sums up, or both."""
    routes = BranchRoutes(topology, bound, way)
    best, pool = first_packed(routes, topology, progress)
    found: Packing | None = None
    end = process_time() + 0.75 * seconds_for(topology)
    if topology.size * len(pool.loads.rotation.roots) > MOST_ROOTS:
        return best
    for each, deeper in product(FEW, range(3)):
        if best.piped >= GOOD or process_time() > end:
            break
        if not deeper or (found and found.piped > GOOD):  # links allow it, and other trees may be even
            progress(f"trees: {each} parts of a root, one between two ranks")
            if found := _of_few(pool, each, deeper, end, progress):
                best = better(routes, found, best)
    return best


def _of_few(known: Pool, each: int, deeper: int, end: float, progress: Progress) -> Packing | None:
    """Return a packing of ``each`` parts a root, in trees that may be ``deeper`` than they need be."""
    found = filled(known.loads.with_most(_most(known, each) / each), end, progress)
    if found is None:
        return None
    pool, whole = found[0], found[0].weighed()[0]
    most = next(most for most in sorted(set(pool.depth)) if pool.reaches(most) and pool.weighed(most)[0] > 0.97 * whole)
    trees = _dived(pool, most + deeper, each, end)
    if trees is None:
        return None
    return in_whole_parts(known.loads, balanced(pool.loads, most + deeper, trees, each), each)


def _most(pool: Pool, each: int) -> Floats:
    """Return the most parts of a root's ``each`` that moves of each orbit carry, [orbits].

    It is one if all moves of their kind carry no more in the mean.
    """
    loads, weights = pool.loads, pool.weighed()[1]
    crowd = np.zeros(loads.count)
    for place in np.flatnonzero(weights):
        nodes = np.flatnonzero(pool.parents[place] >= 0)
        np.add.at(crowd, loads.orbit[pool.parents[place][nodes], nodes], weights[place])
    kind = np.zeros(loads.count)
    kind[loads.orbit] = loads.routes.kinds
    sizes = np.bincount(loads.orbit.reshape(-1), minlength=loads.count)
    most = np.full(loads.count, np.inf)
    for each_kind in np.unique(kind[kind > 0]):
        of = kind == each_kind
        if each * float(crowd[of] @ sizes[of]) <= 1.01 * float(sizes[of].sum()):
            most[of] = 1.0
    return most


def _dived(pool: Pool, most: int, each: int, end: float) -> list[WeightedTree] | None:
    """Return trees of ``each`` whole parts of every root, no deeper than ``most``; None if that takes too long."""
    needed = np.full(len(pool.loads.rotation.roots), each)
    parts, used = np.zeros(len(pool.roots), dtype=np.int64), np.zeros(pool.loads.links)
    while needed.any():
        left = np.maximum(1 - used / each, 1e-3)
        _add_cheapest(pool, needed, pool.weighed(most, needed, left)[2], most)
        weights, root = pool.weighed(most, needed, left)[1], np.array(pool.roots)
        total = np.bincount(root, weights, len(needed))
        weights = weights * (needed / np.where(needed > 0, total, 1.0))[root]
        whole = np.floor(weights + 1e-6).astype(np.int64)
        if not whole.any():
            whole[weights.argmax()] = 1
        needed = needed - np.bincount(root, whole, len(needed)).astype(np.int64)
        used = used + np.stack(pool.columns, axis=1) @ whole
        parts = np.pad(parts, (0, len(whole) - len(parts))) + whole
        if process_time() > end:
            return None
    return pool.trees(parts)


def _add_cheapest(pool: Pool, needed: Ints, prices: Floats, most: int) -> None:
    """Add the cheapest trees, not deeper than ``most``, of the roots that have parts ``needed``."""
    cost = pool.loads.cost(prices / max(prices.sum(), 1e-300) + 1e-6 / len(prices))
    for place in np.flatnonzero(needed).tolist():
        root = pool.loads.rotation.roots[place]
        parent, nearest = cheapest(cost, root), pool.loads.routes.hops(root)
        for tree in (
            *(lifted(parent, cost, slack) for slack in (0.0, 0.3)),
            *(shallow(cost, root, nearest + more) for more in (0, 1)),
        ):
            if depths(tree).max() <= most:
                pool.add(place, tree)
