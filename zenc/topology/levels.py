"""A topology as a summary: its levels, machines and links, grouped by their ends.

TopologySummary = name doc levels ranks memory hosts switches groups bisection narrowest routes
Group           = count x (ends, bandwidth, latency, kind, both ways?)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from zenc.common.wording import aligned, count
from zenc.scheme.units import bandwidth_text, latency_text, memory_text
from zenc.topology.model import Host, Node, Topology, order

MOST_NODES_CUT = 1000
MOST_HOSTS_CUT = 32
MOST_RANKS_ROUTED = 512
"""Most ranks with cuts and routes in a summary: more would take more than a second or two."""


@dataclass(frozen=True, slots=True)
class Group:
    """``count`` links between the kinds of nodes ``source`` and ``target``; bytes a second and seconds."""

    count: int
    source: str
    target: str
    both_ways: bool
    bandwidth: float
    latency: float
    kind: str

    @property
    def ends(self) -> str:
        """``SOURCE - TARGET``; with ``->`` where the links go one way alone."""
        return f"{self.source} {'-' if self.both_ways else '->'} {self.target}"


@dataclass(frozen=True, slots=True)
class TopologySummary:
    """The summary; ``bisection`` is the least bandwidth between the two halves of the ranks, either way, or None.

    ``narrowest``: the machine with the least bandwidth to the others, either way, and that bandwidth; or None.
    ``routed``: the ordered pairs of ranks that have a route, of ``pairs``; None for many ranks.
    """

    topology: Topology
    groups: tuple[Group, ...]
    bisection: float | None
    narrowest: tuple[Host, float] | None
    routed: int | None

    @property
    def pairs(self) -> int:
        """The ordered pairs of different ranks."""
        return self.topology.size * (self.topology.size - 1)

    def to_json(self) -> dict[str, object]:
        """Return the summary as JSON data; memory in bytes, bandwidths in bytes a second, latencies in seconds."""
        topology, keys = self.topology, ("both_ways", "bandwidth", "latency", "kind")
        return {
            "name": topology.name,
            "doc": topology.doc,
            "ranks": topology.size,
            "levels": [{"name": level.name, "count": level.count} for level in topology.levels],
            "memory": [topology.memory(rank) for rank in topology.ranks],
            "hosts": [{"name": h.name, "ranks": list(h.ranks), "memory": h.memory} for h in topology.hosts],
            "switches": dict(_counted(topology)),
            "links": [
                {"count": each.count, "ends": [each.source, each.target], **{key: getattr(each, key) for key in keys}}
                for each in self.groups
            ],
            "bisection": self.bisection,
            "narrowest": self.narrowest and {"host": self.narrowest[0].name, "bandwidth": self.narrowest[1]},
            "pairs": self.pairs,
            "pairs_with_route": self.routed,
        }

    def text(self) -> str:
        """Return the summary as text."""
        topology = self.topology
        rows = [("levels", ", ".join(f"{level.name} {level.count}" for level in topology.levels))]
        rows.append(("ranks", _ranks(topology)))
        if topology.hosts:
            rows.append(("machines", f"{len(topology.hosts)}{_memories(host.memory for host in topology.hosts)}"))
        rows.append(("switches", ", ".join(f"{name} {count}" for name, count in _counted(topology)) or "none"))
        rows += zip(["links", *[""] * len(self.groups)], _table(self.groups), strict=False)
        if self.bisection is not None:
            halves = "between the first half of the ranks and the second"
            rows.append(("bisection", f"{bandwidth_text(self.bisection)} {halves}"))
        if self.narrowest is not None and self.narrowest[1] != self.bisection:
            host, width = self.narrowest
            rows.append(
                ("narrowest", f"{bandwidth_text(width)} between {_ranks_of(host)}, {host.name}, and the others")
            )
        if self.routed is not None:
            some = f"for {self.routed} of {self.pairs} pairs of ranks; for the others, a schedule has to forward"
            rows.append(("routes", "from every rank to every other" if self.routed == self.pairs else some))
        head = [topology.name, *([topology.doc] if topology.doc else []), ""]
        return "\n".join([*head, *(f"{name:<11}{value}".rstrip() for name, value in rows)])


def summarize(topology: Topology) -> TopologySummary:
    """Return the summary that ``zenc topo show`` prints."""
    routed = None
    if topology.size <= MOST_RANKS_ROUTED:
        routed = sum(_with_route(topology, rank) for rank in topology.ranks)
    return TopologySummary(topology, _groups(topology), bisection(topology), narrowest(topology), routed)


def _with_route(topology: Topology, source: int) -> int:
    """Return the number of ranks to which ``source`` has a route: through nodes that forward, so not through ranks."""
    reached: set[Node] = {source}
    pending: list[Node] = [source]
    while pending:
        for node in topology.graph[pending.pop()]:
            if node not in reached:
                reached.add(node)
                if isinstance(node, str):
                    pending.append(node)
    return sum(isinstance(node, int) for node in reached) - 1


def bisection(topology: Topology) -> float | None:
    """Return, in bytes a second, the least total of links whose loss cuts one half of the ranks off from the other.

    The halves are the first and the last ranks, and of the two directions the lesser counts. None for one rank, and for
    topologies of more than ``MOST_NODES_CUT`` nodes.
    """
    if topology.size < 2 or len(topology.graph) > MOST_NODES_CUT:
        return None
    return cut(topology, range(topology.size // 2))


def narrowest(topology: Topology) -> tuple[Host, float] | None:
    """Return the first machine with the least bandwidth between its ranks and all others; None as for ``bisection``.

    None also where there is but one machine, or more than ``MOST_HOSTS_CUT``. Where no machines are declared these are
    the units of the level above the innermost, or the ranks; and None where all have the same bandwidth.
    """
    hosts = topology.hosts or _units(topology)
    if not 1 < len(hosts) <= MOST_HOSTS_CUT or len(topology.graph) > MOST_NODES_CUT:
        return None
    found = [(host, cut(topology, host.ranks)) for host in hosts]
    alike = len({width for _, width in found}) == 1
    return None if alike and not topology.hosts else min(found, key=lambda each: each[1])


def _units(topology: Topology) -> Sequence[Host]:
    """Return the possible machines: each unit of the level above the innermost, or each rank."""
    ranks = topology.levels[-1].count if len(topology.levels) > 1 else 1
    if ranks == 1:
        return [Host(topology.label(rank), (rank,)) for rank in topology.ranks]
    name = topology.levels[-2].name
    firsts = enumerate(range(0, topology.size, ranks))
    return [Host(f"{name}({unit})", tuple(range(first, first + ranks))) for unit, first in firsts]


def cut(topology: Topology, ranks: Collection[int]) -> float:
    """Return, in bytes a second, the least total of links whose loss cuts ``ranks`` off, in the lesser direction."""
    import networkx as nx

    graph = nx.DiGraph()
    for link in topology.links:
        graph.add_edge(link.source, link.target, capacity=link.bandwidth)
    sides = (("side", 0), ("side", 1))  # no node of a topology is a tuple
    for rank in topology.ranks:  # without a capacity: without a limit
        end = sides[rank not in ranks]
        graph.add_edges_from([(end, rank), (rank, end)])
    return float(min(nx.maximum_flow_value(graph, *ends) for ends in (sides, sides[::-1])))


def _counted(topology: Topology) -> list[tuple[str, int]]:
    return sorted(Counter(_family(name) for name in topology.switches).items())


def _family(label: str) -> str:
    return label.split("(")[0]


def _groups(topology: Topology) -> tuple[Group, ...]:
    found: Counter[tuple[str, str, bool, float, float, str]] = Counter()
    ranks = topology.levels[-1].name if topology.levels else "rank"
    for link in topology.links:
        twin = topology.graph.edges.get((link.target, link.source))
        both = twin is not None and all(twin[key] == getattr(link, key) for key in ("bandwidth", "latency", "kind"))
        if not both or order(link.source) < order(link.target):
            source, target = (ranks if isinstance(end, int) else _family(end) for end in (link.source, link.target))
            found[source, target, both, link.bandwidth, link.latency, link.kind] += 1
    return tuple(Group(count, *key) for key, count in found.items())


def _table(groups: tuple[Group, ...]) -> list[str]:
    rows = [("count", "ends", "each way", "latency", "kind")]
    for group in groups:
        rows.append((
            str(group.count), group.ends, bandwidth_text(group.bandwidth), latency_text(group.latency), group.kind
        ))  # fmt: skip
    return aligned(rows)


def _ranks(topology: Topology) -> str:
    last = topology.size - 1
    named = topology.label(0) if not last else f"{topology.label(0)} to {topology.label(last)}"
    return f"{topology.size}: {named}{_memories(map(topology.memory, topology.ranks))}"


def _memories(each: Iterable[int | None]) -> str:
    memories = sorted({memory or 0 for memory in each})
    memory = " or ".join(memory_text(size) if size else "unknown memory" for size in memories)
    return f", {memory} each" if memories != [0] else ""


def _ranks_of(host: Host) -> str:
    first, last = host.ranks[0], host.ranks[-1]
    if len(host.ranks) == 1:
        return f"rank {first}"
    if last - first != len(host.ranks) - 1:
        return count(len(host.ranks), "rank")
    return f"ranks {first} {'and' if last == first + 1 else 'to'} {last}"
