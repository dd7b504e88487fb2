"""Warnings of NCCL's XML importer: links that the file leaves out, and elements that are not read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from zenc.errors import Diagnostic, Span
from zenc.plurals import count
from zenc.topology.builder import printable
from zenc.topology.importers.machine import Machine, Options
from zenc.topology.importers.xml import Attributes, Element

_READ = {
    "system": "version",
    "cpu": "numaid affinity arch vendor familyid modelid",
    "pci": "busid class vendor device subsystem_vendor subsystem_device link_speed link_width",
    "gpu": "dev sm gcn arch rank gdr",
    "nvlink": "target count tclass",
    "xgmi": "target count tclass",
    "nic": "",
    "net": "name dev speed port latency guid maxconn gdr coll keep",
}
"""Element -> its attributes that are read, or known to be about no link."""

_ABOUT_LINKS = re.compile(r"link|fabric|bandwidth|bw|speed|width|target|lanes?$|^count$")
_LONGEST = 40


def unread(root: Element, attributes: Attributes) -> Iterator[Diagnostic]:
    """A warning for each kind of element and of attribute that seems to carry links, and is not read."""
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
    """A warning where a file lists slots alone: what links the GPUs in them is found when a job runs."""
    if machine.gpus < 2 or machine.fabric or options.nvswitch_bandwidth:
        return
    message = f"the file says nothing of NVLinks: it lists slots, so its {machine.gpus} GPUs are linked by PCIe alone"
    help = (
        "if they have NVSwitches, say what a GPU has to them: 'FILE(nvswitch_bandwidth = 300 GB/s)' for A100s, "
        "450 GB/s for H100s; or read what NCCL_TOPO_DUMP_FILE writes in a job, where NVLinks are found"
    )
    yield Diagnostic("links-not-in-file", message, where, help=help, severity="warning")


def nothing_to_rank(root: Element, attributes: Attributes) -> Diagnostic:
    """The error for a file without GPUs in slots: what it has, and what it lacks."""
    counts = Counter(element.tag for element in root.walk())
    stray = next((element for element in root.walk() if element.tag == "gpu"), None)
    if stray:
        message = "this <gpu> is in no <pci>, the slot that says where it is"
        help = 'put each <gpu> into a slot: <pci busid="0000:01:00.0" class="0x030200"> <gpu dev="0"/> </pci>'
        return Diagnostic("no-ranks", message, attributes.at(stray), help=help)
    message = "this machine has no GPUs: no <gpu>, and no empty <pci> whose class is a GPU's (0x0302 or 0x0300)"
    known = [f"{counts[tag]:,} <{tag}>" for tag in ("cpu", "pci", "nic", "net") if counts[tag]]
    notes = (f"it has {', '.join(known)}",) if known else ("it has nothing else either",)
    help = "write the file where GPUs are seen: NCCL_TOPO_DUMP_FILE=box.xml in a job that uses them"
    return Diagnostic("no-ranks", message, attributes.at(root), notes, help)
