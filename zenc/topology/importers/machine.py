"""One machine, as NCCL and nvidia-smi describe it, and a cluster of several like it."""

from __future__ import annotations

from dataclasses import dataclass, field

from zenc.errors import Diagnostic, Span, TopologyError
from zenc.topology import figures
from zenc.topology.draft import Draft
from zenc.topology.importers.options import Options
from zenc.topology.model import Host, Node


@dataclass(frozen=True, slots=True)
class Wire:
    """A link of a machine, both ways. The same ``bandwidth`` in both."""

    source: Node
    target: Node
    bandwidth: float
    latency: float
    kind: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Port:
    """What a network card sends to the network."""

    card: str
    bandwidth: float
    latency: float


@dataclass
class Machine:
    """``gpus`` devices, 0 and up; ``parts`` are name -> (kind, what it is), such as ``nic(0)`` -> (nic, mlx5_0)."""

    gpus: int = 0
    parts: dict[str, tuple[str, str]] = field(default_factory=dict)
    wires: list[Wire] = field(default_factory=list)
    ports: list[Port] = field(default_factory=list)

    def add(self, kind: str, about: str = "", *, number: bool = True) -> str:
        """Declare a part of ``kind``, numbered from 0; returns its name."""
        count = sum(name.startswith(f"{kind}(") for name in self.parts)
        name = f"{kind}({count})" if number else kind
        self.parts[name] = (kind if kind in ("cpu", "nic") else "switch", about)
        return name

    def join_sockets(self) -> None:
        """Link all pairs of CPUs, as NCCL does."""
        cpus = [name for name, (kind, _) in self.parts.items() if kind == "cpu"]
        for place, one in enumerate(cpus):
            for other in cpus[place + 1 :]:
                self.wires.append(Wire(one, other, figures.SYSTEM, figures.SYSTEM_LATENCY, "system"))

    def fill(self, draft: Draft, options: Options) -> None:
        """Put ``options.nodes`` of this machine into ``draft``; more than one are linked by a network switch."""
        if not self.gpus:
            help = "what takes part are GPUs; the file may come from a machine without them"
            raise TopologyError(
                Diagnostic("no-ranks", f"{draft.name} has no GPUs", options.span or draft.span, help=help)
            )
        if options.nodes == 1:
            draft.set_levels(("gpu", self.gpus))
            draft.hosts.append(Host("node(0)", tuple(range(self.gpus))))
            self._copy(draft, {name: name for name in self.parts}, 0)
            return
        draft.set_levels(("node", options.nodes), ("gpu", self.gpus))
        draft.add_hosts(0)
        network = draft.add_switch("network")
        for place in range(options.nodes):
            names = {name: _within(name, place) for name in self.parts}
            self._copy(draft, names, place * self.gpus)
            for port in self.ports:
                draft.connect(names[port.card], network, port.bandwidth, port.latency, "network")

    def _copy(self, draft: Draft, names: dict[str, str], first: int) -> None:
        def at(node: Node) -> Node:
            return first + node if isinstance(node, int) else names[node]

        for name, (kind, about) in self.parts.items():
            draft.add_switch(names[name], kind)
            draft.nodes[names[name]]["about"] = about
        for wire in self.wires:
            ends = at(wire.source), at(wire.target)
            draft.connect(*ends, wire.bandwidth, wire.latency, wire.kind, span=wire.span)


def _within(name: str, place: int) -> str:
    """``nic(2)`` -> ``nic(0, 2)``, ``nvswitch`` -> ``nvswitch(0)``."""
    kind, parenthesis, numbers = name.partition("(")
    return f"{kind}({place}, {numbers}" if parenthesis else f"{kind}({place})"
