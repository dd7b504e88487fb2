"""The builder of a topology: nodes, links, levels and hosts, collected and checked; ``finish`` gives a Topology.

It checks bandwidths and latencies (``zenc.common.limits``), and that a path leads between any two ranks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

from zenc.common.limits import LIMITS
from zenc.common.wording import did_you_mean
from zenc.errors import Diagnostic, Span, TopologyError, printable, raise_if_any
from zenc.topology.model import RANK, Host, Level, Node, Topology

if TYPE_CHECKING:
    import networkx as nx


MOST_NODES = 1 << 16
MOST_LINKS = 1 << 18
"""Most links of a topology, both directions counted: far beyond a fat tree of 27,648 machines, and checked before
anything is built."""


def too_large(nodes: int, links: int, span: Span | None = None) -> Diagnostic | None:
    """Return the diagnostic for a topology of at least ``nodes`` and ``links``; None where it is small enough."""
    if nodes <= MOST_NODES and links <= MOST_LINKS:
        return None
    what = f"{nodes} nodes" if nodes > MOST_NODES else f"{links} links"
    message = f"this topology is too large: {what} or more"
    help = f"a topology has at most {MOST_NODES} nodes and {MOST_LINKS} links; leave out what no message crosses"
    return Diagnostic("topology-too-large", message, span, help=help)


def ensure_small(nodes: int, links: int, span: Span | None = None) -> None:
    """Raise TopologyError (``topology-too-large``) for a topology of at least ``nodes`` and ``links``."""
    if found := too_large(nodes, links, span):
        raise TopologyError(found)


def number_problems(what: str, bandwidth: float, latency: float, span: Span | None) -> Iterable[Diagnostic]:
    """Yield diagnostics of impossible numbers of the link called ``what``."""
    if bandwidth not in LIMITS["bandwidth"]:
        message = f"{what} has a bandwidth of {bandwidth:g} bytes/s"
        help = f"a bandwidth {LIMITS['bandwidth'].words}; leave out a link that carries nothing"
        yield Diagnostic("bad-bandwidth", message, span, help=help)
    if latency not in LIMITS["latency"]:
        message = f"{what} has a latency of {latency:g} s"
        yield Diagnostic("bad-latency", message, span, help="a latency is 0 to 1 second; 0 counts for nothing")


def graph_problems(name: str, graph: nx.DiGraph[Any], span: Span | None) -> list[Diagnostic]:
    """Return diagnostics of the whole graph: no ranks, or ranks that can't reach each other over any links."""
    import networkx as nx

    ranks = [node for node, kind in graph.nodes(data="kind") if kind == RANK]
    if not ranks:
        help = "say how many there are: levels: node(2), gpu(8)"
        return [Diagnostic("no-ranks", f"topology '{name}' has no ranks", span, help=help)]
    root = min(ranks)
    for reached, way in ((nx.descendants, "from {0} to {1}"), (nx.ancestors, "from {1} to {0}")):
        cut_off = sorted(set(ranks) - {root} - reached(graph, root))
        if cut_off:
            labels = [str(graph.nodes[node]["label"]) for node in (root, *cut_off[:_MOST_NAMED])]
            message = f"topology '{name}' has an island: no way leads {way.format(*labels)}"
            more = f" and {len(cut_off) - _MOST_NAMED} more" if len(cut_off) > _MOST_NAMED else ""
            notes = (f"cut off are {len(cut_off)} of {len(ranks)} ranks: {', '.join(labels[1:])}{more}",)
            help = "add a link, or leave out what is not part of the cluster"
            return [Diagnostic("island", message, span, notes, help)]
    return []


_MOST_NAMED = 8
_MOST_PROBLEMS = 20


@dataclass
class _Memory:
    """Bytes of memory for a whole level, and for single places of it named since, kept apart to avoid long walks."""

    of_all: int | None = None
    of_one: dict[Node, int] = field(default_factory=dict)

    def give(self, name: Node | None, memory: int) -> None:
        if name is None:
            self.of_all, self.of_one = memory, {}
        else:
            self.of_one[name] = memory

    def of(self, name: Node, before: int | None) -> int | None:
        return self.of_one.get(name, before if self.of_all is None else self.of_all)


@dataclass
class TopologyBuilder:
    """A collector of nodes, links and their problems; nothing is raised before ``finish``, but for size."""

    name: str
    doc: str = ""
    span: Span | None = None
    levels: tuple[Level, ...] = ()
    hosts: list[Host] = field(default_factory=list)
    nodes: dict[Node, dict[str, Any]] = field(default_factory=dict)
    links: dict[tuple[Node, Node], dict[str, Any]] = field(default_factory=dict)
    problems: list[Diagnostic] = field(default_factory=list)
    unlinked: set[Node] = field(default_factory=set)
    _of_ranks: _Memory = field(default_factory=_Memory)
    _of_hosts: _Memory = field(default_factory=_Memory)

    def set_levels(self, *levels: tuple[str, int], span: Span | None = None, memory: int | None = None) -> None:
        """Declare the levels, outermost first, and all ranks in them."""
        self.levels = tuple(Level(name, count) for name, count in levels)
        counts = [count for _, count in levels]
        self._ensure_room(prod(counts), 0, span)
        for rank, place in enumerate(itertools.product(*map(range, counts))):
            self.add_rank(rank, label_of(levels[-1][0], place), memory)

    def add_rank(self, rank: int, label: str, memory: int | None = None) -> None:
        """Declare the device of ``rank``; ``memory`` in bytes, None where unknown."""
        self.nodes[rank] = {"kind": RANK, "label": label, "memory": memory}

    def add_switch(self, name: str, kind: str = "switch", span: Span | None = None) -> str:
        """Declare a node that forwards; returns its name."""
        self._ensure_room(len(self.nodes) + 1, 0, span)
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
        self._ensure_room(0, len(self.links), span)

    def disconnect(self, ways: Iterable[tuple[Node, Node]]) -> None:
        """Remove those of ``ways`` that are links, and with them switches that are left without a link."""
        for way in ways:
            if self.links.pop(way, None):
                self.unlinked.update(way)

    def _add(self, ends: tuple[Node, Node], data: dict[str, Any], what: str, span: Span | None) -> None:
        other = self.links.setdefault(ends, data)
        if other is data:
            return
        notes = (f"the other one: {other['span']}",) if other["span"] else ()
        help = "parallel cables are one link with the sum of their bandwidths"
        if not any(found.id == "duplicate-link" and found.span == span for found in self.problems[-1:]):
            self.problems.append(Diagnostic("duplicate-link", f"{what} is here twice", span, notes, help))

    def add_hosts(self, depth: int, memory: int | None = None) -> None:
        """Declare each place of the level at ``depth`` a machine: ``node(0)``, ``node(1)``."""
        counts = [level.count for level in self.levels]
        per_host = prod(counts[depth + 1 :])
        for number, place in enumerate(itertools.product(*map(range, counts[: depth + 1]))):
            ranks = tuple(range(number * per_host, (number + 1) * per_host))
            self.hosts.append(Host(label_of(self.levels[depth].name, place), ranks, memory))

    def set_memory(self, depth: int, place: tuple[int, ...], memory: int) -> str | None:
        """Set the memory of the level at ``depth``, or of one place of it; return the problem in words, or None."""
        counts = [level.count for level in self.levels[: depth + 1]]
        label = label_of(self.levels[depth].name, place)
        if place and not (len(place) == len(counts) and all(0 <= i < n for i, n in zip(place, counts, strict=True))):
            return f"there is no {label}; there are {label_of(self.levels[depth].name, counts)}"
        if depth == len(self.levels) - 1:
            self._of_ranks.give(self._rank(place) if place else None, memory)
            return None
        if not self.hosts:
            self.add_hosts(depth)
        if not any(host.name.split("(")[0] == self.levels[depth].name for host in self.hosts):
            return f"{self.hosts[0].name} is a machine already, and machines do not hold machines"
        self._of_hosts.give(label if place else None, memory)
        return None

    def label(self, node: Node) -> str:
        """Return the name of ``node`` in messages: ``gpu(0, 3)``."""
        return str(self.nodes[node]["label"])

    def find(self, name: str, indices: tuple[int, ...]) -> Node | Diagnostic:
        """Return the node called ``name(indices)``, or a diagnostic without a place."""
        label = label_of(name, indices)
        ranks = self.levels[-1].name if self.levels else ""
        counts = [level.count for level in self.levels]
        if name == ranks and len(indices) == len(counts):
            if all(0 <= place < count for place, count in zip(indices, counts, strict=True)):
                return self._rank(indices)
        elif label in self.nodes:
            return label
        return self._not_there(name, label, ranks, counts)

    def _rank(self, place: Sequence[int]) -> int:
        counts = [level.count for level in self.levels]
        return sum(number * prod(counts[i + 1 :]) for i, number in enumerate(place))

    def _not_there(self, name: str, label: str, ranks: str, counts: Sequence[int]) -> Diagnostic:
        switches = {str(node).split("(")[0]: str(node) for node in self.nodes if isinstance(node, str)}
        notes: tuple[str, ...] = ()
        if name == ranks:
            first, last = [0] * len(counts), [count - 1 for count in counts]
            notes = (f"they go from {label_of(ranks, first)} to {label_of(ranks, last)}",)
        elif name in (level.name for level in self.levels):
            notes = (f"'{name}' is a level; what is linked is a {ranks} or a switch",)
        elif name in switches:
            notes = (f"there is {switches[name]}",)
        known = [ranks, *switches] if ranks else list(switches)
        guess = "" if name in known else did_you_mean(name, known)
        help = "declare the levels first: levels: node(2), gpu(8)" if not ranks else None
        if ranks and name not in known:
            help = f"declare a switch before its links: switch {label}"
        return Diagnostic("no-such-node", f"there is no {label}{guess}", None, notes, help)

    def _ensure_room(self, nodes: int, links: int, span: Span | None) -> None:
        """Raise at once if the topology grows too large, since going on would only take time and memory."""
        found = too_large(nodes, links, span or self.span)
        if found:
            raise TopologyError([*self.problems[:_MOST_PROBLEMS], found])

    def finish(self) -> Topology:
        """Return the finished topology.

        Raises:
            TopologyError: with all its problems; the graph as a whole is checked only where all its parts are sound.
        """
        raise_if_any(TopologyError, list(dict.fromkeys(self.problems)))
        import networkx as nx

        for node, data in self.nodes.items():
            if isinstance(node, int):
                data["memory"] = self._of_ranks.of(node, data["memory"])
        hosts = tuple(replace(host, memory=self._of_hosts.of(host.name, host.memory)) for host in self.hosts)
        graph: nx.DiGraph[Any] = nx.DiGraph()
        graph.add_nodes_from(self.nodes.items())
        graph.add_edges_from((*ends, data) for ends, data in self.links.items())
        lone = [node for node in self.unlinked if isinstance(node, str) and not graph.degree[node]]
        graph.remove_nodes_from(lone)
        raise_if_any(TopologyError, graph_problems(self.name, graph, self.span))
        name = printable(self.name).replace('"', "'")  # texts that zenc writes have it between quotes
        return Topology(name, printable(self.doc), self.levels, nx.freeze(graph), hosts)


def label_of(name: str, indices: Sequence[int]) -> str:
    """Return ``nvswitch(0)``, ``gpu(0, 3)``, ``network``."""
    return f"{name}({', '.join(map(str, indices))})" if indices else name
