"""Links between GPUs in NCCL's and RCCL's XML: NVLink, also to NVSwitches, and AMD's xGMI.

    nvlink, xgmi = target x count x tclass                  # in a gpu; target is a busid, tclass 0x0680 a switch

The NVSwitches of a machine count as one, as NCCL counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zenc.errors import Diagnostic, TopologyError
from zenc.topology import link_specs
from zenc.topology.importers.machine import Machine, Wire
from zenc.topology.importers.options import Options
from zenc.topology.importers.xml import Attributes, Element
from zenc.topology.model import Node

FABRICS = {"nvlink": "an NVLink", "xgmi": "an xGMI link"}
"""The elements that are links of a GPU, and what they are called."""

_NVSWITCH_CLASS = "0x0680"
_CPU_CLASS = "0x068001"


@dataclass
class ListedGpu:
    """A ``gpu`` element, and the bus id of the PCIe slot around it."""

    element: Element
    busid: str


def fabric(
    machine: Machine, gpus: Sequence[ListedGpu], cpus: Sequence[str], options: Options, attributes: Attributes
) -> list[Wire]:
    """The links of ``gpus``. Those of a pair are listed at both ends; each end's count is that of the whole.

    Raises TopologyError (``malformed-topology``) where a link leads to no GPU, CPU or switch.
    """
    rank_of = {gpu.busid: rank for rank, gpu in enumerate(gpus) if gpu.busid}
    counts: dict[tuple[int, Node], tuple[int, Element]] = {}
    for rank, gpu in enumerate(gpus):
        for link in (child for child in gpu.element.children if child.tag in FABRICS):
            target = _target(link, rank_of, machine, cpus, attributes)
            count = attributes.integer(link, "count", 1)
            if isinstance(target, int):
                ends = (min(rank, target), max(rank, target))
                counts[ends] = max(counts.get(ends, (0, link)), (count, link), key=lambda found: found[0])
            elif target is not None:
                counts[rank, target] = (counts.get((rank, target), (0, link))[0] + count, link)
    return [
        _wire(rank, end, count, link, gpus[rank].element, options, attributes)
        for (rank, end), (count, link) in counts.items()
    ]


def _wire(
    rank: int, end: Node, count: int, link: Element, gpu: Element, options: Options, attributes: Attributes
) -> Wire:
    if link.tag == "xgmi":
        each = options.xgmi_bandwidth or link_specs.xgmi(gpu.attributes.get("gcn", ""))
    else:
        each = options.nvlink_bandwidth or link_specs.nvlink(attributes.integer(gpu, "sm", 0))
    return Wire(rank, end, count * each, link_specs.NVLINK_LATENCY, link.tag, attributes.at(link))


def _target(
    link: Element, rank_of: dict[str, int], machine: Machine, cpus: Sequence[str], attributes: Attributes
) -> Node | None:
    busid, kind = link.attributes.get("target", ""), link.attributes.get("tclass", "")
    if busid in rank_of:
        return rank_of[busid]
    if kind.startswith(_CPU_CLASS):
        return cpus[0] if cpus else None
    if kind.startswith(_NVSWITCH_CLASS):
        if "nvswitch" not in machine.parts:
            machine.add("nvswitch", number=False)
        return "nvswitch"
    message = f"{FABRICS[link.tag]} leads to {busid[:40]!r}, where there is no GPU"
    raise TopologyError(Diagnostic("malformed-topology", message, attributes.at(link)))
