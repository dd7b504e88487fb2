"""Routes of all pairs at once equal those found one by one; the bound of a cluster is that of all of its cuts."""

from __future__ import annotations

import heapq
import time
from array import array
from collections.abc import Collection
from fractions import Fraction
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz import tried
from zenc.errors import TopologyError
from zenc.topology.all_pairs import NO_ROUTE, length_of
from zenc.topology.bound import bound_of
from zenc.topology.builder import TopologyBuilder
from zenc.topology.load import load_topology
from zenc.topology.model import RANK, Link, Topology, order
from zenc.topology.shapes import dgx, dragonfly, fat_tree, nodes, ring, torus

_UNREACHABLE = -1


class Router:
    """Routes over one topology, by Dijkstra's algorithm from each target."""

    def __init__(self, topology: Topology) -> None:
        graph = topology.graph
        self._nodes = sorted(graph.nodes, key=order)
        self._is_rank = [graph.nodes[node]["kind"] == RANK for node in self._nodes]
        number = {node: place for place, node in enumerate(self._nodes)}
        self._out: list[list[tuple[int, Link]]] = [
            [(number[to], topology.link(node, to)) for to in sorted(graph[node], key=order)] for node in self._nodes
        ]
        self._in: list[list[tuple[int, float, int]]] = [[] for _ in self._nodes]
        for source, links in enumerate(self._out):
            for target, link in links:
                self._in[target].append((source, link.bandwidth, length_of(link.latency)))
        self._widest: dict[int, array[float]] = {}
        self._distances: dict[tuple[int, float], array[int]] = {}
        self._routes: dict[tuple[int, int], tuple[Link, ...] | None] = {}

    def route(self, source: int, target: int) -> tuple[Link, ...] | None:
        """Return the links from rank ``source`` to rank ``target``, in order; None where there is no way."""
        if (source, target) not in self._routes:
            self._routes[source, target] = self._find(source, target)
        return self._routes[source, target]

    def _find(self, source: int, target: int) -> tuple[Link, ...] | None:
        if source == target:
            return ()
        if target not in self._widest:
            self._widest[target] = self._bottlenecks(target)
        width = self._widest[target][source]
        if not width:
            return None
        if (target, width) not in self._distances:
            self._distances[target, width] = self._measure(target, width)
        return self._walk(source, target, width)

    def _bottlenecks(self, target: int) -> array[float]:
        """Return for each node the bandwidth of the widest way from it to ``target``; 0 without a way."""
        widest = array("d", bytes(8 * len(self._nodes)))
        pending = [(float("-inf"), target)]
        while pending:
            width, node = heapq.heappop(pending)
            if -width < widest[node] or (self._is_rank[node] and node != target):
                continue
            for other, bandwidth, _ in self._in[node]:
                if min(-width, bandwidth) > widest[other] and other != target:
                    widest[other] = min(-width, bandwidth)
                    heapq.heappush(pending, (-widest[other], other))
        return widest

    def _measure(self, target: int, width: float) -> array[int]:
        """Return each node's distance to ``target`` over links of at least ``width``, nearest nodes first."""
        distances = array("q", [_UNREACHABLE]) * len(self._nodes)
        distances[target] = 0
        ring = [target]
        while ring:
            following: list[int] = []
            for node in ring:
                if self._is_rank[node] and node != target:
                    continue
                for other, bandwidth, length in self._in[node]:
                    if bandwidth < width:
                        continue
                    distance = distances[node] + length
                    if distances[other] == _UNREACHABLE:
                        following.append(other)
                        distances[other] = distance
                    elif distance < distances[other]:
                        distances[other] = distance
            ring = following
        return distances

    def _walk(self, source: int, target: int, width: float) -> tuple[Link, ...]:
        distances = self._distances[target, width]
        links: list[Link] = []
        node, choices, place = source, 1, 0
        while node != target:
            fit = [
                (other, link)
                for other, link in self._out[node]
                if link.bandwidth >= width
                and (other == target or not self._is_rank[other])
                and distances[other] >= 0
                and distances[other] + length_of(link.latency) == distances[node]
            ]
            place += target // choices if len(fit) > 1 else 0
            node, link = fit[place % len(fit)]
            choices *= len(fit)
            links.append(link)
        return tuple(links)


CLUSTERS = {
    "ring": lambda: ring(5), "pair": lambda: ring(2), "torus": lambda: torus(3, 4), "fat_tree": lambda: fat_tree(4),
    "nodes": lambda: nodes(3, gpus=4, nics=2), "one_node": lambda: nodes(1, gpus=3), "dgx": lambda: dgx(2),
    "dragonfly": lambda: dragonfly(2, 3, 1),
}  # fmt: skip


def every_pair(size: int) -> tuple[np.ndarray, np.ndarray]:
    src, dst = np.divmod(np.arange(size * size), size)
    return src, dst


def otherwise_one_by_one(topology: Topology) -> list[tuple[int, int]]:
    """Return pairs whose way in the table is another one than is found for them alone."""
    table, router = topology.routes, Router(topology)
    src, dst = every_pair(topology.size)
    paths, wrong = table.paths(src, dst), list[tuple[int, int]]()
    if int(paths.lengths.sum()) != len(paths.links):
        wrong.append((-1, -1))
    for i, (one, other) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        found = router.route(one, other)
        start = int(paths.starts[i])
        links = tuple(topology.links[link] for link in paths.links[start : start + len(found or ())])
        right = (NO_ROUTE, ()) if found is None else (len(found), found)
        if (int(paths.counts[i]), links) != right:
            wrong.append((one, other))
    return wrong


@pytest.mark.parametrize("name", CLUSTERS)
def test_common_shapes(name: str) -> None:
    assert otherwise_one_by_one(CLUSTERS[name]()) == []


@given(
    size=st.integers(2, 6),
    switches=st.integers(0, 4),
    links=st.lists(
        st.tuples(
            st.integers(0, 9), st.integers(0, 9), st.sampled_from((1e9, 2e9, 5e9)), st.sampled_from((1e-6, 2e-6))
        ),
        max_size=40,
    ),
)
@settings(max_examples=tried(150), deadline=None)
def test_any_graph(size: int, switches: int, links: list[tuple[int, int, float, float]]) -> None:
    draft = TopologyBuilder("any", "")
    draft.set_levels(("gpu", size))
    names: list[int | str] = [*range(size), *(draft.add_switch(f"s({i})") for i in range(switches))]
    for one, node in enumerate(names):  # around all of them, so that nothing is an island; ranks forward nothing
        if len(names) > 2 or one == 0:
            draft.connect(node, names[(one + 1) % len(names)], 1e9, 5e-6)
    for one, other, bandwidth, latency in links:
        a, b = names[one % len(names)], names[other % len(names)]
        if a != b and (a, b) not in draft.links and (b, a) not in draft.links:
            draft.connect(a, b, bandwidth, latency, one_way=one > other)
    assert otherwise_one_by_one(draft.finish()) == []


def test_chunks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = nodes(3, gpus=4, nics=2)
    assert otherwise_one_by_one(topology) == []
    whole = topology.routes.paths(*every_pair(topology.size))
    monkeypatch.setattr("zenc.topology.all_pairs.MOST_CELLS", 100)
    assert otherwise_one_by_one(topology) == []
    few = topology.routes.paths(*every_pair(topology.size))
    assert (whole.links == few.links).all()


@pytest.mark.slow
def test_a_thousand_ranks_take_seconds() -> None:
    topology = nodes(128, gpus=8)
    started = time.process_time()
    paths = topology.routes.paths(*every_pair(topology.size))
    assert (paths.counts >= 0).all()
    assert time.process_time() - started < 10


def least_cut(topology: Topology, links: Collection[Link]) -> Fraction:
    nodes = list(topology.graph)
    rates = []
    for count in range(1, len(nodes)):
        for chosen in combinations(nodes, count):
            inside = set(chosen)
            ranks = sum(isinstance(node, int) for node in inside)
            if 0 < ranks < topology.size:
                leaving = (x for x in links if x.source in inside and x.target not in inside)
                rates.append(Fraction(sum(round(link.bandwidth) for link in leaving), ranks))
    return min(rates)


@st.composite
def clusters(draw: st.DrawFn) -> str:
    """Draw a text of a connected cluster: a ring of everything, one way, and links at random."""
    ranks, switches = draw(st.integers(2, 5)), draw(st.integers(0, 3))
    names = [f"gpu({rank})" for rank in range(ranks)] + [f"s({k})" for k in range(switches)]
    order = draw(st.permutations(names))
    ends = {(a, b) for a, b in zip(order, [*order[1:], order[0]], strict=True)}
    ends |= set(draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=12)))
    links = [f"link {a} -> {b}: {draw(st.integers(1, 9))} B/s" for a, b in sorted(ends) if a != b]
    return "\n".join(
        ["topology drawn {", f"levels: gpu({ranks})", *(f"switch s({k})" for k in range(switches)), *links, "}"]
    )


@settings(max_examples=tried(60), deadline=None)
@given(text=clusters())
def test_the_bound_is_the_least_of_all_cuts(text: str) -> None:
    topology = load_topology(text)
    taken = {link for pair in permutations(topology.ranks, 2) for link in topology.route(*pair) or ()}
    for links, bound in ((taken, bound_of(topology)), (topology.links, bound_of(topology, links=topology.links))):
        assert bound.rate == least_cut(topology, links)
        leaving = sum(x.bandwidth for x in links if x.source in bound.cut and x.target not in bound.cut)
        assert (bound.leaving, bound.rate) == (leaving, Fraction(round(leaving), bound.inside))


@pytest.mark.parametrize(
    ("cluster", "gigabytes"),
    [
        ("ring(8, bandwidth = 50 GB/s)", 8 * 100 / 7 / 2),
        ("dgx(2)", 16 * 500 / 15 / 2),
        ("nodes(4, bandwidth = 300 GB/s, network_bandwidth = 400 Gbit/s)", 32 * 50 / 24 / 2),
    ],
)
def test_bounds_that_can_be_worked_out_by_hand(cluster: str, gigabytes: float) -> None:
    """A ring hears on two links, a GPU of a DGX on NVLink and its card, and a machine on its one card."""
    assert bound_of(load_topology(cluster)).all_gather / 2 == pytest.approx(gigabytes * 1e9)


def test_the_bound_of_256_ranks_takes_seconds() -> None:
    started = time.process_time()
    assert bound_of(load_topology("torus(16, 16)")).rate == Fraction(4 * 50 * 10**9, 255)
    assert time.process_time() - started < 10


def test_one_rank_and_thousands_are_refused() -> None:
    for cluster, words in (("ring(4096)", "at most 512"), ("nodes(1, gpus = 1)", "nothing to send")):
        with pytest.raises(TopologyError, match=words):
            bound_of(load_topology(cluster))
