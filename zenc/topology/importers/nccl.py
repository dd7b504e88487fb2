"""Importer of NCCL's topology dump (``NCCL_TOPO_DUMP_FILE``): one machine as XML, or the trays of an NVLink domain.

    system > cpu* > (pci* > gpu > (nvlink | xgmi | c2c)*) | (pci* > nic > net*)    # pci nests: bridges, then a slot

The importer uses ``host_hash`` of cpu, which tells hosts apart; ``busid``, ``link_speed`` and ``link_width`` of pci,
where 0 is 16 lanes, as guests see them; ``dev`` and ``mlopart``, a part of a GPU, of gpu; ``name``, ``speed`` in Mbit/s
and ``latency`` in microseconds of net. RCCL writes the same of AMD's machines.

    nvlink, xgmi = target x count x tclass                  # in a gpu; target is a busid, tclass 0x0680 a switch
    c2c          = bw x count                               # to the GPU's own CPU, as of Grace; bw in MB/s

The first two are the links between GPUs: NVLink, also to NVSwitches, and AMD's xGMI. The NVSwitches of a machine
count as one, as NCCL counts them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from zenc.common.wording import count
from zenc.errors import Diagnostic, Source, Span, TopologyError, printable
from zenc.topology import link_specs
from zenc.topology.builder import MOST_NODES
from zenc.topology.importers.machine import Machine, Options, Port, Wire
from zenc.topology.importers.xml import Attributes, Element, line_span, parse_xml
from zenc.topology.model import Node

_READ = {
    "system": "version",
    "cpu": "host_hash numaid affinity arch vendor familyid modelid",
    "pci": "busid class vendor device subsystem_vendor subsystem_device link_speed link_width",
    "gpu": "dev sm gcn arch rank gdr mlopart",
    "nvlink": "target count tclass",
    "xgmi": "target count tclass",
    "c2c": "bw count",
    "nic": "",
    "net": "name dev speed port latency guid maxconn gdr coll keep",
}
"""Element -> its attributes that are read, or known to be about no link."""

_ABOUT_LINKS = re.compile(r"link|fabric|bandwidth|bw|speed|width|target|lanes?$|^count$")
_LONGEST = 40


def unread(root: Element, attributes: Attributes) -> Iterator[Diagnostic]:
    """Yield a warning for each kind of element and of attribute that seems to carry links, and is not read."""
    first: dict[str, Element] = {}
    counts: Counter[str] = Counter()
    for element in root.walk():
        for what in _unread_of(element):
            counts[what] += 1
            first.setdefault(what, element)
    for what, element in first.items():
        message = f"{what} is not read: what it says of links is missing here ({count(counts[what], 'place')})"
        help = 'add such links in a text that starts like this file: topology mine { like "FILE" link ... }'
        yield Diagnostic("unread-links", message, attributes.at(element), help=help, severity="warning")


def _unread_of(element: Element) -> list[str]:
    tag = printable(element.tag[:_LONGEST])
    if element.tag not in _READ:
        return [f"<{tag}>"] if any(map(_ABOUT_LINKS.search, (element.tag, *element.attributes))) else []
    unknown = [name for name in element.attributes if name not in _READ[element.tag].split()]
    return [f"'{printable(name[:_LONGEST])}' of <{tag}>" for name in unknown if _ABOUT_LINKS.search(name)]


def left_out(machine: Machine, options: Options, where: Span) -> Iterator[Diagnostic]:
    """Yield a warning where a file lists slots alone: the links of the GPUs in them are found when a job runs."""
    if machine.gpus < 2 or machine.fabric or options.nvswitch_bandwidth:
        return
    message = f"the file says nothing of NVLinks: it lists slots, so its {machine.gpus} GPUs are linked by PCIe alone"
    help = (
        "if they have NVSwitches, say what a GPU has to them: 'FILE(nvswitch_bandwidth = 300 GB/s)' for A100s, "
        "450 GB/s for H100s; or read what NCCL_TOPO_DUMP_FILE writes in a job, where NVLinks are found"
    )
    yield Diagnostic("links-not-in-file", message, where, help=help, severity="warning")


def nothing_to_rank(root: Element, attributes: Attributes) -> Diagnostic:
    """Return the error for a file without GPUs in slots: its elements, and the missing ones."""
    counts = Counter(element.tag for element in root.walk())
    stray = next((element for element in root.walk() if element.tag == "gpu"), None)
    if stray:
        message = "this <gpu> is in no <pci> of a <cpu>, the slot that says where it is"
        help = 'put each <gpu> into a slot: <pci busid="0000:01:00.0" class="0x030200"> <gpu dev="0"/> </pci>'
        return Diagnostic("no-ranks", message, attributes.at(stray), help=help)
    message = "this machine has no GPUs: no <gpu>, and no empty <pci> whose class is a GPU's (0x0302 or 0x0300)"
    known = [f"{counts[tag]:,} <{tag}>" for tag in ("cpu", "pci", "nic", "net") if counts[tag]]
    notes = (f"it has {', '.join(known)}",) if known else ("it has nothing else either",)
    help = "write the file where GPUs are seen: NCCL_TOPO_DUMP_FILE=box.xml in a job that uses them"
    return Diagnostic("no-ranks", message, attributes.at(root), notes, help)


FABRICS = {"nvlink": "an NVLink", "xgmi": "an xGMI link"}
"""Elements that are links of a GPU -> their names in messages."""

_NVSWITCH_CLASS = "0x0680"
_CPU_CLASS = "0x068001"


@dataclass
class ListedGpu:
    """A ``gpu`` element in its PCIe slot; ``cpu`` is the place of its CPU, and ``parts`` share its links."""

    element: Element
    busid: str
    cpu: int
    host: str
    parts: int


def fabric(
    machine: Machine, gpus: Sequence[ListedGpu], cpus: Sequence[str], options: Options, attributes: Attributes
) -> list[Wire]:
    """Return the links of ``gpus``; a pair's links are listed at both ends, each with the count of the whole.

    A link that leads back to its own GPU is left out, with a warning.

    Raises TopologyError (``malformed-topology``) where a link leads to no GPU, CPU or switch.
    """
    rank_of = {gpu.busid: rank for rank, gpu in enumerate(gpus) if gpu.busid}
    counts: dict[tuple[int, Node], tuple[int, Element]] = {}
    for rank, gpu in enumerate(gpus):
        for link in (child for child in gpu.element.children if child.tag in FABRICS):
            target = _target(link, rank_of, machine, cpus[gpu.cpu], attributes)
            if target == rank:
                machine.warnings.append(_to_itself(link, attributes))
                continue
            count = attributes.integer(link, "count", 1)
            if isinstance(target, int):
                ends = (min(rank, target), max(rank, target))
                counts[ends] = max(counts.get(ends, (0, link)), (count, link), key=lambda found: found[0])
            else:
                counts[rank, target] = (counts.get((rank, target), (0, link))[0] + count, link)
    found = [
        _wire(rank, end, count, link, gpus[rank], options, attributes) for (rank, end), (count, link) in counts.items()
    ]
    return [*found, *(wire for rank, gpu in enumerate(gpus) for wire in _to_cpu(rank, gpu, cpus[gpu.cpu], attributes))]


def _to_cpu(rank: int, gpu: ListedGpu, cpu: str, attributes: Attributes) -> Iterator[Wire]:
    """Yield the chip-to-chip link of a superchip, from its GPU to its CPU."""
    for link in (child for child in gpu.element.children if child.tag == "c2c"):
        bandwidth = attributes.number(link, "bw", 0.0) * 1e6 * attributes.integer(link, "count", 1) / gpu.parts
        if bandwidth > 0:
            yield Wire(rank, cpu, bandwidth, link_specs.NVLINK_LATENCY, "c2c", attributes.at(link))


def _to_itself(link: Element, attributes: Attributes) -> Diagnostic:
    message = f"{FABRICS[link.tag]} leads back to its own GPU, and is left out"
    help = "if GPUs are linked in pairs, add that in a text that is like this file: link gpu(0) - gpu(1): 300 GB/s"
    return Diagnostic("unread-links", message, attributes.at(link), help=help, severity="warning")


def _wire(
    rank: int, end: Node, count: int, link: Element, of: ListedGpu, options: Options, attributes: Attributes
) -> Wire:
    gpu = of.element
    if link.tag == "xgmi":
        each = options.xgmi_bandwidth or link_specs.xgmi(gpu.attributes.get("gcn", ""))
    else:
        each = options.nvlink_bandwidth or link_specs.nvlink(attributes.integer(gpu, "sm", 0))
    return Wire(rank, end, count * each / of.parts, link_specs.NVLINK_LATENCY, link.tag, attributes.at(link))


def _target(link: Element, rank_of: dict[str, int], machine: Machine, cpu: str, attributes: Attributes) -> Node:
    busid, kind = link.attributes.get("target", ""), link.attributes.get("tclass", "")
    if busid in rank_of:
        return rank_of[busid]
    if kind.startswith(_CPU_CLASS):
        return cpu
    if kind.startswith(_NVSWITCH_CLASS):
        if "nvswitch" not in machine.parts:
            machine.add("nvswitch", number=False)
        return "nvswitch"
    message = f"{FABRICS[link.tag]} leads to {busid[:40]!r}, where there is no GPU"
    raise TopologyError(Diagnostic("malformed-topology", message, attributes.at(link)))


_GPU_CLASSES = ("0x0302", "0x0300")
_CARD_CLASSES = ("0x0200", "0x0207")
_MOST_GPUS = 1024


def read(data: bytes, source: Source, options: Options) -> Machine:
    """Read the machine of a dump; raises TopologyError (``malformed-topology``, ``topology-too-large``)."""
    root = parse_xml(data, source, MOST_NODES)
    if root.tag != "system":
        message = f"the outermost element is <{root.tag[:40]}>, and NCCL's is <system>"
        raise TopologyError(Diagnostic("malformed-topology", message, line_span(source, root.line)))
    return _NcclReader(source, options).read(root)


def _tell_by_class(slots: list[Element]) -> None:
    """Fill empty slots by their class, as in the files that clouds give for NCCL_TOPO_FILE."""
    for slot in slots:
        if not slot.children and slot.attributes.get("class", "").startswith(_GPU_CLASSES):
            slot.children.append(Element("gpu", {}, slot.line))
        elif not slot.children and slot.attributes.get("class", "").startswith(_CARD_CLASSES):
            card = Element("nic", {}, slot.line)
            card.children.append(Element("net", {"name": slot.attributes.get("busid", "?"), "speed": ""}, slot.line))
            slot.children.append(card)


def _cpus(root: Element) -> list[Element]:
    return [element for element in root.children if element.tag == "cpu"]


def _host(cpu: Element) -> str:
    return cpu.attributes.get("host_hash", "")


def _parts(slot: Element) -> int:
    """Return the number of parts in which the GPU of ``slot`` is used; each has a share of its links."""
    return max(1, sum("mlopart" in child.attributes for child in slot.children if child.tag == "gpu"))


def _bus(busid: str) -> tuple[int, ...]:
    return tuple(int(part, 16) for part in re.findall("[0-9a-fA-F]{1,16}", busid))


@dataclass
class _NcclReader:
    source: Source
    options: Options
    machine: Machine = field(default_factory=Machine)
    gpus: list[ListedGpu] = field(default_factory=list)
    cpus: list[str] = field(default_factory=list)
    attributes: Attributes = field(init=False)

    def __post_init__(self) -> None:
        self.attributes = Attributes(self.source)

    def read(self, root: Element) -> Machine:
        told_by_class = self._number_gpus(root)
        if not self.gpus:
            raise TopologyError(nothing_to_rank(root, self.attributes))
        hosts: dict[str, list[str]] = {}
        for element in _cpus(root):
            about = " ".join(element.attributes.get(key, "") for key in ("vendor", "arch")).strip()
            self.cpus.append(self.machine.add("cpu", about))
            hosts.setdefault(_host(element), []).append(self.cpus[-1])
            self._slots(element, self.cpus[-1])
        for cpus in hosts.values():
            self.machine.join_sockets(cpus)
        self.machine.wires += fabric(self.machine, self.gpus, self.cpus, self.options, self.attributes)
        self.machine.keep_widest()
        self.machine.warnings += unread(root, self.attributes)
        if told_by_class:
            self.machine.warnings += left_out(self.machine, self.options, self.attributes.at(root))
        return self.machine

    def _number_gpus(self, root: Element) -> bool:
        """Number GPUs host by host: by device number, the local rank, or as CUDA by bus id where that is ambiguous.

        Returns whether the file has slots alone, and the GPUs are told by these.
        """
        slots = [pci for pci in root.walk() if pci.tag == "pci"]
        told_by_class = not any(element.tag == "gpu" for element in root.walk())
        if told_by_class:
            _tell_by_class(slots)
        found = [
            ListedGpu(gpu, pci.attributes.get("busid", ""), place, _host(cpu), _parts(pci))
            for place, cpu in enumerate(_cpus(root))
            for pci in cpu.walk()
            for gpu in (pci.children if pci.tag == "pci" else ())
            if gpu.tag == "gpu"
        ]
        if len(found) > _MOST_GPUS:
            message = f"this machine has {len(found)} GPUs, and no machine has more than {_MOST_GPUS}"
            raise TopologyError(Diagnostic("topology-too-large", message, self.attributes.at(root)))
        by_host: dict[str, list[ListedGpu]] = {}
        for gpu in found:
            by_host.setdefault(gpu.host, []).append(gpu)
        for gpus in by_host.values():
            first = len(self.gpus)
            self.gpus += self._numbered(gpus)
            self.machine.hosts.append(tuple(range(first, len(self.gpus))))
        self.machine.gpus = len(found)
        return told_by_class

    def _numbered(self, gpus: list[ListedGpu]) -> list[ListedGpu]:
        number, part = ([self.attributes.integer(gpu.element, key, 0) for gpu in gpus] for key in ("dev", "mlopart"))
        keys: list[tuple[tuple[int, ...], int]] = [((n,), 0) for n in number] if len(set(number)) == len(gpus) else []
        keys = keys or [(_bus(gpu.busid), p) for gpu, p in zip(gpus, part, strict=True)]
        return [gpu for _, gpu in sorted(zip(keys, gpus, strict=True), key=lambda pair: pair[0])]

    def _slots(self, parent: Element, node: str) -> None:
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
        speed = self.options.network_bandwidth or sum(
            self.attributes.number(net, "speed", 0.0) * 1e6 / 8 or link_specs.NETWORK
            for net in nets  # from Mbit/s
        )
        latency = max(self.attributes.number(net, "latency", 0.0) for net in nets) * 1e-6
        self.machine.ports.append(Port(card, speed, latency or self.options.network_latency))

    def _pcie(self, slot: Element | None) -> float:
        if self.options.pcie_bandwidth is not None:
            return self.options.pcie_bandwidth
        if slot is None:
            return link_specs.PCIE
        speed = re.match(r"\s*([0-9]{1,3}(?:\.[0-9]{1,3})?)\s*GT/s", slot.attributes.get("link_speed", ""))
        width = self.attributes.integer(slot, "link_width", 0) or 16
        lane = link_specs.PCIE_LANE_BY_GTS.get(float(speed[1])) if speed else None
        return lane * width if lane and 0 < width <= 64 else link_specs.PCIE

    def _wire(self, source: Node, target: Node, bandwidth: float, element: Element) -> None:
        wire = Wire(source, target, bandwidth, link_specs.PCIE_LATENCY, "pcie", self.attributes.at(element))
        self.machine.wires.append(wire)
