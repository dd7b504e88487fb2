"""What NCCL writes to ``NCCL_TOPO_DUMP_FILE``: one machine as XML.

    system > cpu* > (pci* > gpu > nvlink*) | (pci* > nic > net*)      # pci nests: bridges and switches, then a slot

Used are of pci ``busid``, ``link_speed`` and ``link_width``; of gpu ``dev`` and ``sm``; of nvlink ``target``, ``count``
and ``tclass`` (0x0680: a switch); of net ``name``, ``speed`` in Mbit/s and ``latency`` in microseconds. The NVSwitches
of a machine count as one, as NCCL counts them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from zenc.errors import Diagnostic, Source, Span, TopologyError
from zenc.topology import figures
from zenc.topology.check import MOST_NODES
from zenc.topology.importers.machine import Machine, Port, Wire
from zenc.topology.importers.options import Options
from zenc.topology.importers.xml import Element, Lines, line_span, parse_xml
from zenc.topology.model import Node

_NVSWITCH_CLASS = "0x0680"
_GPU_CLASSES = ("0x0302", "0x0300")
_CARD_CLASSES = ("0x0200", "0x0207")
_CPU_CLASS = "0x068001"
_MOST_GPUS = 1024


def read(data: bytes, source: Source, options: Options) -> Machine:
    root = parse_xml(data, source, MOST_NODES)
    if root.tag != "system":
        message = f"the outermost element is <{root.tag[:40]}>, and NCCL's is <system>"
        raise TopologyError(Diagnostic("malformed-topology", message, line_span(source, root.line)))
    return _Reader(source, options).read(root)


def _tell_by_class(slots: list[Element]) -> None:
    """Files that clouds give for NCCL_TOPO_FILE have empty slots: what is in them is told by the slot's class."""
    for slot in slots:
        if not slot.children and slot.attributes.get("class", "").startswith(_GPU_CLASSES):
            slot.children.append(Element("gpu", {}, slot.line))
        elif not slot.children and slot.attributes.get("class", "").startswith(_CARD_CLASSES):
            card = Element("nic", {}, slot.line)
            card.children.append(Element("net", {"name": slot.attributes.get("busid", "?"), "speed": ""}, slot.line))
            slot.children.append(card)


@dataclass
class _Gpu:
    element: Element
    busid: str


@dataclass
class _Reader:
    source: Source
    options: Options
    machine: Machine = field(default_factory=Machine)
    gpus: list[_Gpu] = field(default_factory=list)
    cpus: list[str] = field(default_factory=list)
    lines: Lines = field(init=False)

    def __post_init__(self) -> None:
        self.lines = Lines(self.source)

    def read(self, root: Element) -> Machine:
        self._number_gpus(root)
        for element in root.children:
            if element.tag == "cpu":
                about = " ".join(element.attributes.get(key, "") for key in ("vendor", "arch")).strip()
                self.cpus.append(self.machine.add("cpu", about))
                self._slots(element, self.cpus[-1])
        self.machine.join_sockets()
        self._nvlinks()
        return self.machine

    def _number_gpus(self, root: Element) -> None:
        """GPUs by their device number, which is the local rank; in the order of the file where these are not unique."""
        slots = [pci for pci in root.walk() if pci.tag == "pci"]
        if not any(gpu.tag == "gpu" for pci in slots for gpu in pci.children):
            _tell_by_class(slots)
        found = [
            _Gpu(gpu, pci.attributes.get("busid", "")) for pci in slots for gpu in pci.children if gpu.tag == "gpu"
        ]
        if len(found) > _MOST_GPUS:
            message = f"this machine has {len(found)} GPUs, and no machine has more than {_MOST_GPUS}"
            raise TopologyError(Diagnostic("topology-too-large", message, self._at(root)))
        numbers = [self._integer(gpu.element, "dev", 0) for gpu in found]
        if len(set(numbers)) == len(found):
            found = [gpu for _, gpu in sorted(zip(numbers, found, strict=True), key=lambda pair: pair[0])]
        self.gpus, self.machine.gpus = found, len(found)

    def _slots(self, parent: Element, node: str) -> None:
        """The slots below a CPU or a PCIe switch ``node``, and what is in them."""
        for element in parent.children:
            if element.tag == "nic":
                self._card(element, node, self._pcie(None))
            elif element.tag == "pci":
                self._slot(element, node)

    def _slot(self, element: Element, node: str) -> None:
        bandwidth = self._pcie(element)
        if any(child.tag == "pci" for child in element.children):
            switch = self.machine.add("pci", element.attributes.get("busid", ""))
            self._wire(switch, node, bandwidth, element)
            self._slots(element, switch)
        for child in element.children:
            if child.tag == "gpu":
                rank = next(place for place, gpu in enumerate(self.gpus) if gpu.element is child)
                self._wire(rank, node, bandwidth, element)
            elif child.tag == "nic" and not any(other.tag == "pci" for other in element.children):
                self._card(child, node, bandwidth)

    def _card(self, nic: Element, node: str, bandwidth: float) -> None:
        nets = [net for net in nic.children if net.tag == "net"]
        if not nets:
            return
        card = self.machine.add("nic", ", ".join(net.attributes.get("name", "?") for net in nets))
        self._wire(card, node, bandwidth, nic)
        speed = self.options.network_bandwidth or sum(self._speed(net) for net in nets)
        latency = max(self._number(net, "latency", 0.0) for net in nets) * 1e-6
        self.machine.ports.append(Port(card, speed, latency or self.options.network_latency))

    def _speed(self, net: Element) -> float:
        """Mbit/s -> bytes a second."""
        return self._number(net, "speed", 0.0) * 1e6 / 8 or figures.NETWORK

    def _pcie(self, slot: Element | None) -> float:
        if self.options.pcie_bandwidth is not None:
            return self.options.pcie_bandwidth
        if slot is None:
            return figures.PCIE
        speed = re.match(r"\s*([0-9]{1,3}(?:\.[0-9]{1,3})?)\s*GT/s", slot.attributes.get("link_speed", ""))
        width = self._integer(slot, "link_width", 0)
        lane = figures.PCIE_LANE_BY_GTS.get(float(speed[1])) if speed else None
        return lane * width if lane and 0 < width <= 64 else figures.PCIE

    def _wire(self, source: Node, target: Node, bandwidth: float, element: Element) -> None:
        wire = Wire(source, target, bandwidth, figures.PCIE_LATENCY, "pcie", self._at(element))
        self.machine.wires.append(wire)

    def _nvlinks(self) -> None:
        """Links of a pair are listed at both ends; each end's count is that of the whole."""
        rank_of = {gpu.busid: rank for rank, gpu in enumerate(self.gpus) if gpu.busid}
        counts: dict[tuple[int, Node], tuple[int, Element]] = {}
        for rank, gpu in enumerate(self.gpus):
            for link in (child for child in gpu.element.children if child.tag == "nvlink"):
                target = self._target(link, rank_of)
                count = self._integer(link, "count", 1)
                if isinstance(target, int):
                    ends = (min(rank, target), max(rank, target))
                    counts[ends] = max(counts.get(ends, (0, link)), (count, link), key=lambda found: found[0])
                elif target is not None:
                    counts[rank, target] = (counts.get((rank, target), (0, link))[0] + count, link)
        for (rank, end), (count, link) in counts.items():
            per_link = self.options.nvlink_bandwidth or figures.nvlink(self._integer(self.gpus[rank].element, "sm", 0))
            wire = Wire(rank, end, count * per_link, figures.NVLINK_LATENCY, "nvlink", self._at(link))
            self.machine.wires.append(wire)

    def _target(self, link: Element, rank_of: dict[str, int]) -> Node | None:
        busid, kind = link.attributes.get("target", ""), link.attributes.get("tclass", "")
        if busid in rank_of:
            return rank_of[busid]
        if kind.startswith(_CPU_CLASS):
            return self.cpus[0] if self.cpus else None
        if kind.startswith(_NVSWITCH_CLASS):
            if "nvswitch" not in self.machine.parts:
                self.machine.add("nvswitch", number=False)
            return "nvswitch"
        message = f"an NVLink leads to {busid[:40]!r}, where there is no GPU"
        raise TopologyError(Diagnostic("malformed-topology", message, self._at(link)))

    # Attributes

    def _at(self, element: Element) -> Span:
        return self.lines.span(element.line)

    def _number(self, element: Element, name: str, default: float) -> float:
        text = element.attributes.get(name, "").strip()
        if not text:
            return default
        if not re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", text):
            message = f"'{name}' of <{element.tag}> is {text[:40]!r}, and no number"
            raise TopologyError(Diagnostic("malformed-topology", message, self._at(element)))
        return float(text)

    def _integer(self, element: Element, name: str, default: int) -> int:
        return int(self._number(element, name, default))
