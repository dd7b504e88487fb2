"""A machine as NCCL and nvidia-smi describe it, and a cluster of several like it, by the options of an import.

Options are numbers that a file leaves open, given by its reader: bandwidths in bytes a second, latencies in seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from zenc.errors import Diagnostic, Span, TopologyError
from zenc.topology import link_specs
from zenc.topology.builder import TopologyBuilder, ensure_small
from zenc.topology.model import Host, Node


@dataclass(frozen=True, slots=True)
class Options:
    """Options of an import: ``nodes`` machines like the file's.

    Bandwidths are bytes a second, latencies seconds; None is the file's value or a default.

    ``given`` are the names of the options given, and ``span`` is their place.
    """

    nodes: int = 1
    nvlink_bandwidth: float | None = None
    xgmi_bandwidth: float | None = None
    nvswitch_bandwidth: float | None = None
    pcie_bandwidth: float | None = None
    network_bandwidth: float | None = None
    network_latency: float = link_specs.NETWORK_LATENCY
    given: tuple[str, ...] = ()
    span: Span | None = None

    @classmethod
    def of(cls, values: Mapping[str, int | float | None], span: Span | None) -> Options:
        """Return the options that are not None; raises TopologyError (``wrong-range``) for fewer than one node."""
        known: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
        options = cls(**known, given=tuple(known), span=span)
        if options.nodes < 1:
            raise TopologyError(Diagnostic("wrong-range", f"nodes is {options.nodes}, and must be at least 1", span))
        return options

    def refuse(self, kind: str) -> None:
        """Raise TopologyError if an option was given for a file that says everything itself."""
        if self.given:
            message = f"{kind} says everything itself, and takes no '{self.given[0]}'"
            raise TopologyError(Diagnostic("wrong-arguments", message, self.span))


IMPORT_OPTIONS = tuple(field.name for field in fields(Options) if field.name not in ("given", "span"))


@dataclass(frozen=True, slots=True)
class Wire:
    """A link of a machine, with the same ``bandwidth`` both ways."""

    source: Node
    target: Node
    bandwidth: float
    latency: float
    kind: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Port:
    """A network card's port: bytes a second and seconds."""

    card: str
    bandwidth: float
    latency: float


@dataclass
class Machine:
    """A machine of ``gpus`` devices, 0 and up; ``parts`` are name -> (kind, text), such as ``nic(0)`` -> (nic, mlx5_0).

    ``hosts``: the devices of each host, where there are several in one NVLink domain, one after another.
    """

    gpus: int = 0
    parts: dict[str, tuple[str, str]] = field(default_factory=dict)
    wires: list[Wire] = field(default_factory=list)
    ports: list[Port] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)
    hosts: list[tuple[int, ...]] = field(default_factory=list)
    _counts: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, about: str = "", *, number: bool = True) -> str:
        """Declare a part of ``kind``, numbered from 0; return its name."""
        name = f"{kind}({self._counts[kind]})" if number else kind
        self._counts[kind] += number
        self.parts[name] = (kind if kind in ("cpu", "nic") else "switch", about)
        return name

    @property
    def fabric(self) -> list[Wire]:
        """Links of GPUs to each other, or to NVSwitches."""
        return [wire for wire in self.wires if wire.kind in ("nvlink", "xgmi")]

    def join_by_nvswitch(self, bandwidth: float, span: Span | None) -> None:
        """Link all devices to one switch; raises TopologyError (``wrong-arguments``) where they have links already."""
        if self.fabric:
            message = "the file has links between its GPUs, so there is no 'nvswitch_bandwidth' beside them"
            raise TopologyError(Diagnostic("wrong-arguments", message, span))
        switch = self.add("nvswitch", number=False)
        self.wires += [
            Wire(gpu, switch, bandwidth, link_specs.NVLINK_LATENCY, "nvlink", span) for gpu in range(self.gpus)
        ]

    def keep_widest(self) -> None:
        """Remove wires beside wider ones of the same ends, such as PCIe beside a superchip's link to its CPU."""
        widest: dict[frozenset[Node], Wire] = {}
        for wire in self.wires:
            ends = frozenset((wire.source, wire.target))
            widest[ends] = max(widest.get(ends, wire), wire, key=lambda each: each.bandwidth)
        self.wires = list(widest.values())

    def join_sockets(self, cpus: Sequence[str]) -> None:
        """Link all pairs of ``cpus``, as NCCL does; raises TopologyError where these are too many to be a machine's."""
        ensure_small(len(self.parts), len(cpus) * (len(cpus) - 1))
        for place, one in enumerate(cpus):
            for other in cpus[place + 1 :]:
                self.wires.append(Wire(one, other, link_specs.SYSTEM, link_specs.SYSTEM_LATENCY, "system"))

    def copy(self, draft: TopologyBuilder, names: dict[str, str], first: int) -> None:
        """Put this machine into ``draft``: its parts by ``names``, its devices from rank ``first`` on."""

        def at(node: Node) -> Node:
            return first + node if isinstance(node, int) else names[node]

        for name, (kind, about) in self.parts.items():
            draft.add_switch(names[name], kind)
            draft.nodes[names[name]]["about"] = about
        for wire in self.wires:
            ends = at(wire.source), at(wire.target)
            draft.connect(*ends, wire.bandwidth, wire.latency, wire.kind, span=wire.span)


def fill_with(draft: TopologyBuilder, machines: Sequence[Machine], options: Options) -> None:
    """Put ``machines`` into ``draft``, or ``options.nodes`` of the only one; several are linked by a network switch.

    The levels are node and gpu, or gpu alone where the machines have different numbers of them.
    """
    if len(machines) > 1 and options.nodes > 1:
        message = "several files are one machine each, and there is no number of nodes beside them"
        raise TopologyError(Diagnostic("wrong-arguments", message, options.span))
    ensure_small(options.nodes * (1 + sum(machine.gpus for machine in machines)), 0, options.span or draft.span)
    every = [machine for machine in machines for _ in range(options.nodes)]
    if not all(machine.gpus for machine in machines):
        help = "what takes part are GPUs; the file may come from a machine without them"
        message = f"a machine of {draft.name} has no GPUs"
        raise TopologyError(Diagnostic("no-ranks", message, options.span or draft.span, help=help))
    for machine in machines:
        draft.problems += machine.warnings
        if options.nvswitch_bandwidth:
            machine.join_by_nvswitch(options.nvswitch_bandwidth, options.span)
    hosts = [machine.hosts or [tuple(range(machine.gpus))] for machine in every]
    sizes = [len(host) for of in hosts for host in of]
    equal = len(set(sizes)) == 1 and len(sizes) > 1
    draft.set_levels(*[("node", len(sizes)), ("gpu", sizes[0])] if equal else [("gpu", sum(sizes))])
    by_cards = len(sizes) > 1 and any(machine.ports for machine in machines)
    network = draft.add_switch("network") if len(every) > 1 or by_cards else ""
    first = 0
    for place, (machine, of) in enumerate(zip(every, hosts, strict=True)):
        names = {name: _within(name, place) if len(every) > 1 else name for name in machine.parts}
        machine.copy(draft, names, first)
        for host in of:
            draft.hosts.append(Host(f"node({len(draft.hosts)})", tuple(first + rank for rank in host)))
        for port in machine.ports if network else ():
            draft.connect(names[port.card], network, port.bandwidth, port.latency, "network")
        first += machine.gpus


def _within(name: str, place: int) -> str:
    """Return ``nic(2)`` as ``nic(0, 2)``, ``nvswitch`` as ``nvswitch(0)``."""
    kind, parenthesis, numbers = name.partition("(")
    return f"{kind}({place}, {numbers}" if parenthesis else f"{kind}({place})"
