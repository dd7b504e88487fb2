"""Trees, and what they load: the links of moves between ranks, and of moves that rotations make alike.

Moves take the routes of ``zenc.topology.all_pairs``, so what trees load is what the simulator and
``zenc check --topology`` say. A step in the midst of a call has all moves of all trees at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import TypeAlias

import numpy as np

from zenc.simulator.network import fair_rates
from zenc.synthesize.arborescence import Floats, Ints, depths
from zenc.synthesize.rotation import Rotation
from zenc.topology.bound import Bound
from zenc.topology.model import Topology

Progress: TypeAlias = Callable[[str], None]
DOWN, UP, BOTH, APART = "down", "up", "both", "apart"
MOST_CELLS = 1 << 22
"""Most orbits of moves times links for which trees are balanced one by one."""
MOST_ALL_PARTS = 77_824
"""Most parts of all ranks, chunks counted."""
MOST_CHUNKS = 304
EVEN = 0.999
GOOD = 0.952
"""The share of the bound, with the time of chunks, at which less symmetry, and more parts, are not tried."""
_FILL, _FILL_MORE = 60, 120
"""Chunks for each that the links could carry while they wait for the first ones: they wait a sixtieth of the time.

They wait less where only so trees are ``GOOD``, and half as long where these are not.
"""
_TOGETHER = 1.01
"""Messages end together whose times are as near, and so do links fill."""
MOST_FLOWS = 2048
"""Most messages of a step that are looked at one by one; else its time is that of the busiest link."""


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
    that no trees of this ``rotation`` exceed, since a message between two ranks takes one route. ``even``: of a step,
    the time in which the busiest link is busy, as messages share links fairly, which end at different times.
    """

    rotation: Rotation
    trees: tuple[WeightedTree, ...]
    each: int
    share: float
    waiting: float
    ceiling: float = 1.0
    even: float = 1.0

    @property
    def depth(self) -> int:
        """The depth of the deepest tree."""
        return max(int(depths(tree.parent).max()) for tree in self.trees)

    @property
    def chunks(self) -> int:
        """The chunks in which its trees carry a large tensor."""
        least = GOOD / (self.share * self.even)
        aim = min(1.004 * least, 0.998)  # a little more, as the simulator may find less
        fill = max(_FILL, aim / (1 - aim)) if least < 1 else _FILL_MORE
        most = MOST_ALL_PARTS // (len(self.trees[0].parent) * self.each)
        return max(1, min(max(ceil(fill * self.waiting), 10 * (self.depth - 1)), MOST_CHUNKS, most))

    @property
    def piped(self) -> float:
        """The share of the bound to expect: in each step one more chunk goes on by a branch.

        Ranks that are done with a step early slow others down by their next one: messages of unlike ends cost twice.
        """
        return self.share * self.even**2 * self.chunks / (self.chunks + self.waiting)


class BranchRoutes:
    """The links that each branch between ranks loads: ``down`` for results, ``up`` for sums, or both at once.

    Or one after the other, ``apart``, where the way back takes other links: then each link is there twice.
    """

    def __init__(self, topology: Topology, bound: Bound, way: str = DOWN) -> None:
        size = topology.size
        self.size = size
        self.halves = [BranchRoutes(topology, bound, each) for each in (UP, DOWN)] if way == BOTH else []
        above, below = np.divmod(np.arange(size * size), size)
        ends = {DOWN: [(above, below)], UP: [(below, above)]}.get(way, [(above, below), (below, above)])
        every = [topology.routes.paths(*each) for each in ends]
        found = [paths.over(np.arange(size * size)) for paths in every]
        self.pair, self.link = (np.concatenate(column) for column in zip(*found, strict=True))
        self.back = np.arange(len(self.pair)) >= len(found[0][1])
        self.ways = np.all([paths.counts > 0 for paths in every], axis=0).reshape(size, size)
        self.width = np.array([link.bandwidth for link in topology.links])
        if way == APART:
            self.link[self.back] += len(self.width)
            self.width = np.tile(self.width, 2)
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
            self, rotation, orbit.reshape(self.size, self.size), len(kinds), of, link, counts * self.share[link], links
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
    links: int

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
        return self.count * self.links <= MOST_CELLS

    @cached_property
    def table(self) -> Floats:
        """The share that each orbit takes of each link, without links that are loaded alike: [some links, orbits]."""
        table = np.zeros((self.links, self.count))
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
        return np.asarray(np.bincount(self.link, self.load * times[self.of], minlength=self.links), np.float64)


def evenly(packing: Packing, routes: BranchRoutes) -> Packing:
    """Return ``packing`` with ``even``, of a step that has all moves at once."""
    size = routes.size
    sent = np.zeros((size, size))
    for tree in packing.trees:
        nodes = np.flatnonzero(tree.parent >= 0)
        for image in packing.rotation.images:
            np.add.at(sent, (image[tree.parent[nodes]], image[nodes]), tree.parts / packing.each)
    rest, on = np.tile(sent.reshape(-1), 2), sent.reshape(-1)[routes.pair] > 0
    flows, flow = np.unique((routes.pair + size * size * routes.back)[on], return_inverse=True)
    took = fair_time(rest[flows], flow, routes.link[on], 1 / routes.share)
    return replace(packing, even=min(1.0, 1 / took / packing.share))


def fair_time(rest: Floats, flow: Ints, link: Ints, width: Floats) -> float:
    """Return the time in which flows carry the ``rest`` [flows] of each; ``flow[i]`` is on ``link[i]``."""
    if len(rest) > MOST_FLOWS:
        return float((np.bincount(link, rest[flow], minlength=len(width)) / width).max())
    now = 0.0
    while len(rest):
        left = rest / fair_rates(flow, link, np.ones(len(link)), len(rest), width, _TOGETHER)
        going = left > left.min() * _TOGETHER
        ends = float(left[~going].max())
        now, rest = now + ends, (rest * (1 - ends / left))[going]
        kept, place = going[flow], np.cumsum(going) - 1
        flow, link = place[flow[kept]], link[kept]
    return now


def in_shares(packing: Packing, each: int) -> Packing:
    """Return ``packing`` with ``each`` parts a root, a multiple of those it has; trees have the same shares of them."""
    trees = tuple(replace(tree, parts=tree.parts * (each // packing.each)) for tree in packing.trees)
    return replace(packing, trees=trees, each=each)
