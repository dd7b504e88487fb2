"""Routes one by one, with lists and a heap: an oracle for the table of all pairs, by the same rule."""

from __future__ import annotations

import heapq
from array import array

from zenc.topology.all_pairs import length_of
from zenc.topology.model import RANK, Link, Topology, order

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
