"""The cheapest tree that leads from a root to all others, by the algorithm of Chu, Liu (1965) and Edmonds (1967)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def cheapest(cost: Floats, root: int) -> Ints:
    """Return the parent of each node [nodes] in the cheapest tree from ``root``; its own is -1.

    ``cost[u, v]`` [nodes, nodes] is that of a tree's branch from u to v.
    """
    cost = cost.copy()
    np.fill_diagonal(cost, np.inf)
    cost[:, root] = np.inf
    parent: Ints = cost.argmin(axis=0)
    parent[root] = -1
    circle = _circle(parent)
    if circle is None:
        return parent
    rest = np.setdiff1d(np.arange(len(cost)), circle)
    into = cost[np.ix_(rest, circle)] - cost[parent[circle], circle]
    entry, exit_ = into.argmin(axis=1), cost[np.ix_(circle, rest)].argmin(axis=0)
    smaller = np.empty((len(rest) + 1,) * 2)
    smaller[:-1, :-1] = cost[np.ix_(rest, rest)]
    smaller[:-1, -1] = into.min(axis=1)
    smaller[-1, :-1] = cost[np.ix_(circle, rest)].min(axis=0)
    inner: Ints = cheapest(smaller, int(np.searchsorted(rest, root)))
    node, last = np.r_[rest, -1], len(rest)
    for place, above in enumerate(inner[:-1].tolist()):
        parent[rest[place]] = circle[exit_[place]] if above == last else node[above]
    parent[root] = -1
    parent[circle[entry[inner[-1]]]] = rest[inner[-1]]
    return parent


def _circle(parent: Ints) -> Ints | None:
    seen = np.zeros(len(parent), dtype=np.int64)
    for start in range(len(parent)):
        way, node = [], start
        while node >= 0 and not seen[node]:
            seen[node] = start + 1
            way.append(node)
            node = int(parent[node])
        if node >= 0 and seen[node] == start + 1:
            return np.sort(np.array(way[way.index(node) :], dtype=np.int64))
    return None


def depths(parent: Ints) -> Ints:
    """Return the depth of each node [nodes]: 0 of the root."""
    depth = np.where(parent < 0, 0, -1)
    while (depth < 0).any():
        known = (depth < 0) & (depth[parent] >= 0)
        depth[known] = depth[parent[known]] + 1
    return depth


def heights(parent: Ints) -> Ints:
    """Return the height of each node [nodes]: 0 where nothing is below it."""
    height = np.zeros_like(parent)
    for node in np.argsort(-depths(parent), kind="stable").tolist():
        if parent[node] >= 0:
            height[parent[node]] = max(height[parent[node]], height[node] + 1)
    return height


def lifted(parent: Ints, cost: Floats, slack: float) -> Ints:
    """Return the tree with nodes moved to parents nearer to the root, each for at most ``slack`` of the mean cost.

    ``parent`` is [nodes], ``cost`` [nodes, nodes].
    """
    parent, depth = parent.copy(), depths(parent)
    nodes = np.flatnonzero(parent >= 0)
    allowed = slack * float(cost[parent[nodes], nodes].mean())
    for node in nodes[np.argsort(depth[nodes], kind="stable")].tolist():
        depth[node] = depth[parent[node]] + 1
        above = np.flatnonzero(depth < depth[node] - 1)
        near = above[cost[above, node] <= cost[parent[node], node] + allowed]
        if len(near):
            parent[node] = near[np.lexsort((cost[near, node], depth[near]))[0]]
            depth[node] = depth[parent[node]] + 1
    return parent


def shallow(cost: Floats, root: int, deepest: Ints) -> Ints:
    """Return a cheap tree in which each node is at most ``deepest`` [nodes] below the root.

    It grows by the cheapest branch that keeps to that (Prim 1957); then nodes move to cheaper parents no deeper.
    """
    size = len(cost)
    parent, depth, best = np.full(size, -1), np.full(size, size), np.full(size, np.inf)
    depth[root], node = 0, root
    waiting = np.arange(size) != root
    while True:
        better = waiting & (depth[node] < deepest) & (cost[node] < best)
        parent[better], best[better] = node, cost[node, better]
        if not waiting.any():
            break
        node = int(np.where(waiting, best, np.inf).argmin())
        waiting[node], depth[node] = False, depth[parent[node]] + 1
    for node in np.flatnonzero(parent >= 0).tolist():
        cheaper = np.where(depth < depth[node], cost[:, node], np.inf)
        parent[node] = cheaper.argmin()
    return parent
