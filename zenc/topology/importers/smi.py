"""The text of ``nvidia-smi topo -m``: a matrix of how each pair of a machine's GPUs and network cards is connected.

    X     itself                                    NV#   # NVLinks
    PIX   one PCIe bridge at most                   PXB   several PCIe bridges
    PHB   the host bridge of a CPU                  NODE  several host bridges of one NUMA node
    SYS   the link between NUMA nodes

The matrix names the worst stretch of each way and no speeds. A tree that fits is made of it: those that are PIX to each
other share a PCIe switch, those that are PXB a switch above it, those that are PHB or NODE, or have one NUMA affinity,
a CPU.
Where all GPUs have more NVLinks to each other than a GPU has, these lead to a switch.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from zenc.errors import Diagnostic, Source, TopologyError
from zenc.topology import link_specs
from zenc.topology.importers.machine import Machine, Options, Port, Wire
from zenc.topology.importers.xml import line_span
from zenc.topology.model import Node

_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU = re.compile(r"GPU[0-9]+")
_DEPTH = {"PIX": 0, "PXB": 1, "PHB": 2, "NODE": 2}
_NVLINK = re.compile(r"NV([0-9]{1,2})")
_MOST_NVLINKS = 18
"""Most NVLinks of a GPU: Hopper and Blackwell."""
_MOST_COLUMNS = 1024


def read(data: bytes, source: Source, options: Options) -> Machine:
    """Read the machine of a matrix; raises TopologyError (``malformed-topology``, ``topology-too-large``)."""
    return _machine(_read(source), options)


@dataclass
class _Matrix:
    names: list[str]
    cells: dict[str, list[str]] = field(default_factory=dict)
    numa: dict[str, str] = field(default_factory=dict)
    legend: dict[str, str] = field(default_factory=dict)
    numa_at: int | None = None

    def pairs(self) -> list[tuple[str, str, str]]:
        return [
            (one, other, self.cells[one][place])
            for row, one in enumerate(self.names)
            for place, other in enumerate(self.names)
            if place > row
        ]


def _read(source: Source) -> _Matrix:
    matrix: _Matrix | None = None
    known: frozenset[str] = frozenset()
    for number, line in enumerate(_ESCAPE.sub("", source.text).splitlines(), 1):
        words = line.split()
        if matrix is None:
            if words and _GPU.fullmatch(words[0]) and (len(words) == 1 or words[1] not in ("X", "=")):
                matrix = _Matrix(_columns(words, source, number), numa_at=_numa_column(line))
                known = frozenset(matrix.names)
        elif words and words[0] in known and words[0] not in matrix.cells:
            _row(matrix, _cells(line), source, number)
        elif len(words) == 2 and words[0][:-1] in known and words[0].endswith(":"):
            matrix.legend[words[0][:-1]] = words[1]
    if matrix is None:
        raise _malformed(source, 1, "there is no line with the names of the columns: GPU0 GPU1 ...")
    missing = [name for name in matrix.names if name not in matrix.cells]
    if missing:
        raise _malformed(source, 1, f"there is no row for {missing[0]}")
    return matrix


def _columns(words: Sequence[str], source: Source, number: int) -> list[str]:
    """Return the names before ``CPU Affinity`` and the columns after it."""
    end = next((place for place, word in enumerate(words) if word in ("CPU", "NUMA")), len(words))
    if end > _MOST_COLUMNS:
        message = f"this matrix has {end} columns, and no machine has more than {_MOST_COLUMNS} GPUs and cards"
        raise TopologyError(Diagnostic("topology-too-large", message, line_span(source, number)))
    if len(set(words[:end])) < end:
        raise _malformed(source, number, "a column is there twice")
    return list(words[:end])


def _cells(line: str) -> list[str]:
    """Return the cells of a row, its name first; they lie between tabs where it has any, since a cell may be empty."""
    return [cell.strip() for cell in line.strip(" ").split("\t")] if "\t" in line else line.split()


def _numa_column(line: str) -> int | None:
    """Return the place of ``NUMA Affinity`` in a row; None where the columns are not separated by tabs."""
    heads = _cells(line) if "\t" in line else []
    first = next((place for place, head in enumerate(heads) if head), 0)
    return heads.index("NUMA Affinity") - first + 1 if "NUMA Affinity" in heads else None


def _row(matrix: _Matrix, words: Sequence[str], source: Source, number: int) -> None:
    name, count = words[0], len(matrix.names)
    cells = list(words[1 : count + 1])
    if len(cells) < count:
        raise _malformed(source, number, f"the row of {name} has {len(cells)} of {count} columns")
    for other, cell in zip(matrix.names, cells, strict=True):
        known = cell == "X" if other == name else cell in (*_DEPTH, "SYS") or _NVLINK.fullmatch(cell)
        if not known:
            raise _malformed(source, number, f"{name} to {other} is {cell[:20]!r}, which means nothing")
    matrix.cells[name] = cells
    at = count + 2 if matrix.numa_at is None else matrix.numa_at
    if len(words) > at and words[at].isdigit():
        matrix.numa[name] = words[at]


def _malformed(source: Source, line: int, message: str) -> TopologyError:
    help = "give the whole output of nvidia-smi topo -m, from the line with GPU0"
    return TopologyError(Diagnostic("malformed-topology", message, line_span(source, line), help=help))


def _machine(matrix: _Matrix, options: Options) -> Machine:
    gpus = [name for name in matrix.names if _GPU.fullmatch(name)]
    machine = Machine(gpus=len(gpus))
    nodes: dict[str, Node] = {gpu: rank for rank, gpu in enumerate(gpus)}
    for name in matrix.names:
        if name not in nodes:
            card = machine.add("nic", matrix.legend.get(name, name))
            nodes[name] = card
            bandwidth = options.network_bandwidth or link_specs.NETWORK
            machine.ports.append(Port(card, bandwidth, options.network_latency))
    _tree(matrix, machine, nodes, options.pcie_bandwidth or link_specs.PCIE)
    machine.join_sockets([name for name, (kind, _) in machine.parts.items() if kind == "cpu"])
    _nvlinks(matrix, machine, nodes, options.nvlink_bandwidth or link_specs.nvlink(90))
    return machine


def _tree(matrix: _Matrix, machine: Machine, nodes: dict[str, Node], bandwidth: float) -> None:
    """Add PCIe switches above the devices that share one, and CPUs above these."""
    import networkx as nx

    depths = [nx.utils.UnionFind(matrix.names) for _ in range(3)]
    for (one, other, cell), (depth, groups) in itertools.product(matrix.pairs(), enumerate(depths)):
        if _DEPTH.get(cell, 3) <= depth:
            groups.union(one, other)
    first: dict[str, str] = {}
    for name, number in matrix.numa.items():  # NVLinks hide how their ends are connected otherwise
        depths[2].union(name, first.setdefault(number, name))
    _join_by_nvlinks(matrix, depths[2])
    cpus = {group: machine.add("cpu") for group in dict.fromkeys(map(depths[2].__getitem__, matrix.names))}
    switches: dict[tuple[int, str], str] = {}
    for name in matrix.names:
        node = nodes[name]
        members = 1
        for depth, groups in enumerate(depths[:2]):
            if groups.weights[groups[name]] == members:
                continue
            members = groups.weights[groups[name]]
            key = (depth, groups[name])
            if is_new := key not in switches:
                switches[key] = machine.add("pci")
            machine.wires.append(_pcie(node, switches[key], bandwidth))
            node = switches[key]
            if not is_new:
                break
        else:
            machine.wires.append(_pcie(node, cpus[depths[2][name]], bandwidth))


def _pcie(source: Node, target: Node, bandwidth: float) -> Wire:
    return Wire(source, target, bandwidth, link_specs.PCIE_LATENCY, "pcie")


def _join_by_nvlinks(matrix: _Matrix, groups: Any) -> None:
    """Put GPUs that are joined by NVLinks at one CPU, unless a NUMA affinity or a SYS between them says otherwise."""
    apart = _apart(matrix, groups)
    for one, other, cell in matrix.pairs():
        first, second = groups[one], groups[other]
        told = one in matrix.numa and other in matrix.numa
        if told or first == second or second in apart[first] or not _NVLINK.fullmatch(cell):
            continue
        groups.union(one, other)
        kept = groups[one]
        for far in apart.pop(second if kept == first else first):
            apart[far] = apart[far] - {first, second} | {kept}
            apart[kept].add(far)


def _apart(matrix: _Matrix, groups: Any) -> dict[str, set[str]]:
    """Return the groups that have a SYS between them and a group, for each group."""
    apart: dict[str, set[str]] = {groups[name]: set() for name in matrix.names}
    for one, other, cell in matrix.pairs():
        first, second = groups[one], groups[other]
        if cell == "SYS" and first != second:
            apart[first].add(second)
            apart[second].add(first)
    return apart


def _nvlinks(matrix: _Matrix, machine: Machine, nodes: dict[str, Node], bandwidth: float) -> None:
    found = {(one, other): int(cell[2:]) for one, other, cell in matrix.pairs() if _NVLINK.fullmatch(cell)}
    found = {ends: count for ends, count in found.items() if count}
    per_gpu: Counter[str] = Counter()
    for ends, count in found.items():
        per_gpu.update(dict.fromkeys(ends, count))
    gpus = [name for name in matrix.names if name in per_gpu]
    counts = set(found.values())
    complete = len(found) == len(gpus) * (len(gpus) - 1) // 2
    if complete and len(counts) == 1 and max(per_gpu.values()) > _MOST_NVLINKS:
        switch = machine.add("nvswitch", number=False)
        for gpu in gpus:
            wire = Wire(nodes[gpu], switch, counts.copy().pop() * bandwidth, link_specs.NVLINK_LATENCY, "nvlink")
            machine.wires.append(wire)
        return
    for (one, other), count in found.items():
        wire = Wire(nodes[one], nodes[other], count * bandwidth, link_specs.NVLINK_LATENCY, "nvlink")
        machine.wires.append(wire)
