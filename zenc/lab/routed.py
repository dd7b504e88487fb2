"""Hosts on this machine joined as a topology says: a network namespace for each rank and switch, a veth for each link.

    rank 0 [eth0 tbf] ── [tbf eth3] switch [eth4 tbf] ── [tbf eth0] rank 1

A token bucket at each end of a link shapes what goes in there. Packets take the routes of the topology, which depend on
their source, too: each has a table of its own. The ends of a link share an address, so that nobody asks for it.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import product

from zenc.errors import Diagnostic
from zenc.lab.cluster import CONGESTION_CONTROL, SYSCTLS, EmulatedCluster
from zenc.lab.namespaces import NetworkError
from zenc.scheme.units import bandwidth_text
from zenc.topology.model import Link, Node, Topology

FORWARDING = {"net/ipv4/ip_forward": 1, "net/ipv4/conf/all/rp_filter": 0, "net/ipv4/conf/default/rp_filter": 0}
"""Switches forward, and packets need not go back the way that they came."""
MOST_BITS = 10e9
"""Bits a second of the fastest link that processors can play."""
_TABLE = 1000
"""The routing table of packets from rank 0; that of another rank has its number added."""


class RoutedCluster(EmulatedCluster):
    """A host for each rank of ``topology``, with its links, switches and routes; latencies are left out.

    Raises NetworkError where a rank has no route to another, or a link is one-way or faster than MOST_BITS.
    """

    def __init__(self, topology: Topology, burst: int = 70_000, queue: str = "2mb") -> None:
        super().__init__(topology.size, "1gbit", burst, queue)
        self.topology, self.places = topology, {node: i for i, node in enumerate([*topology.ranks, *topology.switches])}
        one, links = topology.label, topology.links
        lone = next((pair for pair in product(topology.ranks, repeat=2) if topology.route(*pair) is None), None)
        fast = next((link for link in links if 8 * link.bandwidth > MOST_BITS), None)
        single = next((link for link in links if not topology.graph.has_edge(link.target, link.source)), None)
        if fast:
            ends = f"{one(fast.source)} - {one(fast.target)}"
            what = f"{ends} has {bandwidth_text(fast.bandwidth)}, and a lab at most 10 Gbit/s"
            self._refuse(what, fast, "write a topology with links a thousand times as slow: times are as much longer")
        if single:
            self._refuse(f"{one(single.source)} -> {one(single.target)} leads one way", single, "link both ways")
        if lone:
            help = "only switches forward packets; put one between them"
            self._refuse(f"no switches lead from {one(lone[0])} to {one(lone[1])}", None, help)

    def _refuse(self, what: str, link: Link | None, help: str) -> None:
        message = f"hosts can't be joined as {self.topology.name}: {what}"
        raise NetworkError(Diagnostic("bad-lab", message, link.span if link else None, help=help))

    @property
    def nodes(self) -> int:
        """The number of ranks and switches."""
        return len(self.places)

    def _make(self) -> None:
        of, devices = defaultdict[Node, int](int), dict[tuple[Node, Node], str]()
        hosts = {node: self.namespaces.hosts[place] for node, place in self.places.items()}
        for link in self.topology.links:
            devices[link.source, link.target] = f"eth{of[link.source]}"
            of[link.source] += 1
        for host in hosts.values():
            self._set(host, {**SYSCTLS, **FORWARDING})
            self.ip(host, ["link set lo up"])
        for number, (a, b) in enumerate(sorted(devices, key=lambda ends: [self.places[end] for end in ends])):
            if self.places[a] < self.places[b]:
                address = f"address 02:00:00:01:{number >> 8:02x}:{number & 255:02x}"
                veth = (
                    f"link add {devices[a, b]} {address} type veth peer name {devices[b, a]} {address} netns {hosts[b]}"
                )
                self.ip(hosts[a], [veth])
        for (node, to), device in devices.items():
            self.ip(hosts[node], [f"link set {device} arp off up"])
            self._shape(hosts[node], device, f"{8 * self.topology.link(node, to).bandwidth:.0f}bit")
        self._route(hosts, devices)

    def _route(self, hosts: dict[Node, int], devices: dict[tuple[Node, Node], str]) -> None:
        lines = defaultdict[Node, list[str]](list)
        for source in self.topology.ranks:
            own = self.address(source)
            lines[source] += [f"addr add {own}/32 dev eth0"]
            for target in self.topology.ranks:
                for link in self.topology.route(source, target) or ():
                    way = f"route replace {self.address(target)}/32 dev {devices[link.source, link.target]}"
                    more = (
                        f"src {own} congctl {CONGESTION_CONTROL}"
                        if link.source == source
                        else f"table {_TABLE + source}"
                    )
                    lines[link.source].append(f"{way} {more}")
            for switch in self.topology.switches:
                lines[switch].append(f"rule add from {own} lookup {_TABLE + source}")
        for node, batch in lines.items():
            self.ip(hosts[node], batch)
