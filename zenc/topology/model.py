"""A cluster as data: a networkx graph of ranks, switches and links.

    Topology = name doc Level* graph Host*
    Level    = name count                              # outermost first: node 4, gpu 8; none where nothing is known
    Host     = name Rank* memory?                      # ranks that share the memory of one machine, in bytes
    graph    = Node*, Link*                            # a networkx.DiGraph, frozen
    Node     = int | str                               # a rank is the integer that it is; all else has a name
    Link     = source target bandwidth latency kind    # one direction; bytes a second, seconds

Attributes of the graph's nodes: ``kind`` (``rank``, ``switch``, ``nic``, ``cpu``) and ``label``, its name in messages;
of ranks also ``memory`` in bytes, or None. Attributes of its edges: ``bandwidth``, ``latency``, ``kind`` (``link``,
``nvlink``, ``xgmi``, ``c2c``, ``pcie``, ``network``, ``system``) and ``span``, its place in the text, or None.

Ranks are numbered 0 to size - 1, the innermost level running fastest, as torchrun numbers them. Between two nodes there
is at most one link in each direction: parallel cables are one link with the sum of their bandwidths.

Messages are forwarded by switches, NICs and CPUs, never by a rank: a device passes on only the data that a schedule
tells it to. So there may be no route between two ranks of a connected graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from zenc.errors import Spanned

if TYPE_CHECKING:
    import networkx as nx

    from zenc.topology.all_pairs import RouteTable

Node: TypeAlias = int | str

RANK = "rank"


@dataclass(frozen=True, slots=True)
class Level:
    """A level: ``count`` of its places are in each place of the level outside it."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class Link(Spanned):
    """A direction of a link: ``bandwidth`` in bytes a second, ``latency`` in seconds."""

    source: Node
    target: Node
    bandwidth: float
    latency: float
    kind: str = "link"


@dataclass(frozen=True, slots=True)
class Host:
    """A machine: its ``ranks``, and the bytes of memory that they share; None where unknown."""

    name: str
    ranks: tuple[int, ...]
    memory: int | None = None


@dataclass(frozen=True, eq=False)
class Topology:
    """A cluster that has been checked: see ``zenc.topology.builder``. Compared by identity."""

    name: str
    doc: str
    levels: tuple[Level, ...]
    graph: nx.DiGraph[Any]
    hosts: tuple[Host, ...] = ()

    @cached_property
    def size(self) -> int:
        """The number of ranks."""
        return sum(1 for _, kind in self.graph.nodes(data="kind") if kind == RANK)

    @property
    def ranks(self) -> range:
        """The ranks 0 to ``size`` - 1."""
        return range(self.size)

    @cached_property
    def has_gpus(self) -> bool:
        """True where ranks are GPUs, as far as it says: by a level ``gpu``, or NVLinks."""
        return "gpu" in self.level_sizes or any(link.kind == "nvlink" for link in self.links)

    @cached_property
    def switches(self) -> tuple[str, ...]:
        """The nodes that are no ranks, in the order of ``order``."""
        return tuple(sorted((node for node in self.graph if isinstance(node, str)), key=order))

    @property
    def level_sizes(self) -> dict[str, int]:
        """Level name -> count, outermost first; their product is the number of ranks."""
        return {level.name: level.count for level in self.levels}

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """Return the place of ``rank`` in each level, outermost first; ``(rank,)`` where there are no levels."""
        if not 0 <= rank < self.size:
            raise ValueError(f"{self.name} has ranks 0 to {self.size - 1}, not {rank}")
        found: list[int] = []
        for level in reversed(self.levels):
            rank, place = divmod(rank, level.count)
            found.append(place)
        return tuple(reversed(found)) or (rank,)

    def label(self, node: Node) -> str:
        """Return the name of ``node`` in messages: ``gpu(0, 3)``, ``nvswitch(0)``."""
        return str(self.graph.nodes[node]["label"])

    def kind(self, node: Node) -> str:
        """Return ``rank``, ``switch``, ``nic`` or ``cpu``."""
        return str(self.graph.nodes[node]["kind"])

    def memory(self, rank: int) -> int | None:
        """Return the bytes of memory of the device ``rank``; None where unknown."""
        memory: int | None = self.graph.nodes[rank].get("memory")
        return memory

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """The links, each direction by itself, in the order of their ends."""
        ends = sorted(self.graph.edges, key=lambda edge: (order(edge[0]), order(edge[1])))
        return tuple(self.link(source, target) for source, target in ends)

    def link(self, source: Node, target: Node) -> Link:
        """Return the link from ``source`` to ``target``; raises KeyError where there is no link."""
        data = self.graph.edges[source, target]
        return Link(source, target, data["bandwidth"], data["latency"], data["kind"], span=data.get("span"))

    def route(self, source: int, target: int) -> tuple[Link, ...] | None:
        """Return the links of a message from rank ``source`` to rank ``target``; None where there is no way.

        The result is empty for a rank to itself. The rule is that of ``zenc.topology.all_pairs``. Raises ValueError for
        a rank that the topology does not have.
        """
        import numpy as np

        for rank in (source, target):
            if not 0 <= rank < self.size:
                raise ValueError(f"{self.name} has ranks 0 to {self.size - 1}, not {rank}")
        paths = self.routes.paths(np.array([source]), np.array([target]))
        return tuple(self.links[place] for place in paths.links.tolist()) if paths.counts[0] >= 0 else None

    @cached_property
    def routes(self) -> RouteTable:
        """The routes of all pairs of ranks, over ``links``."""
        from zenc.topology.all_pairs import RouteTable

        place = {node: i for i, node in enumerate(sorted(self.graph, key=order))}
        links = [(place[link.source], place[link.target], link.bandwidth, link.latency) for link in self.links]
        return RouteTable(self.size, len(place), links)


def order(node: Node) -> tuple[bool, int, list[tuple[bool, int, str]]]:
    """Return a key that sorts ranks first, by number; then names, with the numbers in them as numbers."""
    import re

    if isinstance(node, int):
        return (False, node, [])
    pieces = re.findall(r"[0-9]{1,18}|[^0-9]+|[0-9]+", node)
    return (True, 0, [(False, int(p), "") if "0" <= p[0] <= "9" else (True, 0, p) for p in pieces])
