"""A cluster that is being put together, by a builder, a text or an importer; ``finish`` makes a Topology of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from zenc.errors import Diagnostic, Span, TopologyError, raise_if_any
from zenc.topology.check import graph_problems, number_problems, too_large
from zenc.topology.model import RANK, Host, Level, Node, Topology

_MOST_PROBLEMS = 20


@dataclass
class Draft:
    """Collects nodes and links, and what is wrong with them; nothing is raised before ``finish``, but for size."""

    name: str
    doc: str = ""
    span: Span | None = None
    levels: tuple[Level, ...] = ()
    hosts: list[Host] = field(default_factory=list)
    nodes: dict[Node, dict[str, Any]] = field(default_factory=dict)
    links: dict[tuple[Node, Node], dict[str, Any]] = field(default_factory=dict)
    problems: list[Diagnostic] = field(default_factory=list)

    def set_levels(self, *levels: tuple[str, int], span: Span | None = None, memory: int | None = None) -> None:
        """Declare the levels, outermost first, and all ranks in them."""
        self.levels = tuple(Level(name, count) for name, count in levels)
        counts = [count for _, count in levels]
        self._demand_room(prod(counts), 0, span)
        names = levels[-1][0]
        for rank, place in enumerate(_places(counts)):
            self.add_rank(rank, f"{names}({', '.join(map(str, place))})", memory)

    def add_rank(self, rank: int, label: str, memory: int | None = None) -> None:
        self.nodes[rank] = {"kind": RANK, "label": label, "memory": memory}

    def add_switch(self, name: str, kind: str = "switch", span: Span | None = None) -> str:
        """Declare a node that forwards; returns its name."""
        self._demand_room(len(self.nodes) + 1, 0, span)
        self.nodes[name] = {"kind": kind, "label": name, "span": span}
        return name

    def connect(
        self,
        source: Node,
        target: Node,
        bandwidth: float,
        latency: float,
        kind: str = "link",
        *,
        one_way: bool = False,
        span: Span | None = None,
    ) -> None:
        """Link two nodes that are there, both ways or one way, at ``bandwidth`` bytes a second for each direction."""
        labels = [str(self.nodes[node]["label"]) for node in (source, target)]
        what = f"the link {labels[0]} {'->' if one_way else '-'} {labels[1]}"
        self.problems += number_problems(what, bandwidth, latency, span)
        if source == target:
            self.problems.append(Diagnostic("self-link", f"{labels[0]} is linked to itself", span))
            return
        for ends in [(source, target)] if one_way else [(source, target), (target, source)]:
            self._add(ends, {"bandwidth": bandwidth, "latency": latency, "kind": kind, "span": span}, what, span)
        self._demand_room(0, len(self.links), span)

    def _add(self, ends: tuple[Node, Node], data: dict[str, Any], what: str, span: Span | None) -> None:
        other = self.links.setdefault(ends, data)
        if other is data:
            return
        notes = (f"the other one: {other['span']}",) if other["span"] else ()
        help = "parallel cables are one link with the sum of their bandwidths"
        if not any(found.id == "duplicate-link" and found.span == span for found in self.problems[-1:]):
            self.problems.append(Diagnostic("duplicate-link", f"{what} is here twice", span, notes, help))

    def add_hosts(self, name: str, per_host: int, memory: int | None = None) -> None:
        """Cut the ranks into machines of ``per_host`` that follow each other: ``name(0)``, ``name(1)``."""
        size = sum(data["kind"] == RANK for data in self.nodes.values())
        for place in range(size // per_host):
            ranks = tuple(range(place * per_host, (place + 1) * per_host))
            self.hosts.append(Host(f"{name}({place})", ranks, memory))

    def _demand_room(self, nodes: int, links: int, span: Span | None) -> None:
        """Raise at once where going on would only take time and memory."""
        found = too_large(nodes, links, span or self.span)
        if found:
            raise TopologyError([*self.problems[:_MOST_PROBLEMS], found])

    def finish(self) -> Topology:
        """The topology.

        Raises:
            TopologyError: with all that is wrong with it; what is wrong with the whole is asked only of sound parts.
        """
        raise_if_any(TopologyError, _limited(self.problems))
        import networkx as nx

        graph: nx.DiGraph[Any] = nx.DiGraph()
        graph.add_nodes_from(self.nodes.items())
        graph.add_edges_from((*ends, data) for ends, data in self.links.items())
        raise_if_any(TopologyError, graph_problems(self.name, graph, self.span))
        return Topology(self.name, self.doc, self.levels, nx.freeze(graph), tuple(self.hosts))


def _limited(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    return list(dict.fromkeys(problems))[:_MOST_PROBLEMS]


def _places(counts: Sequence[int]) -> Iterable[tuple[int, ...]]:
    import itertools

    return itertools.product(*map(range, counts))
