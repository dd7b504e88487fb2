"""Layout of a topology's drawing: ranks in a row, switches above them by their distance from the ranks.

Where there is no switch, ranks stand in a circle, or in a grid if the topology has two levels and links along both.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from zenc.simulator.calibration import rising
from zenc.topology.model import Node, Topology, order

LAYER = 96.0
"""The least distance between two layers."""


@dataclass(frozen=True, slots=True)
class NodePosition:
    """The middle of a node; ``layer`` 0 are the ranks, -1 is a node of a circle or a grid."""

    x: float
    y: float
    layer: int


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """``places`` of all nodes, within ``width`` and ``height``; ``pitch`` is the least distance between ranks."""

    places: Mapping[Node, NodePosition]
    width: float
    height: float
    pitch: float


def node_layout(topology: Topology) -> NodeLayout:
    """Return places for all nodes of ``topology``."""
    if topology.switches or topology.size <= 2:
        return _layered(topology)
    side = _grid_side(topology)
    return _grid(topology, side) if side else _circle(topology)


def _grid_side(topology: Topology) -> int:
    """Return the ranks in a row of a grid, or 0; all links of a grid lead along the rows and columns of two levels."""
    if len(topology.levels) != 2 or min(level.count for level in topology.levels) < 2:
        return 0
    for source, target in topology.graph.edges:
        one, other = topology.coordinates(source), topology.coordinates(target)
        if sum(a != b for a, b in zip(one, other, strict=True)) != 1:
            return 0
    return topology.levels[1].count


def _circle(topology: Topology) -> NodeLayout:
    radius = max(110.0, topology.size * 52.0 / (2 * math.pi))
    places: dict[Node, NodePosition] = {}
    for rank in topology.ranks:
        angle = 2 * math.pi * rank / topology.size - math.pi / 2
        x, y = radius * (1 + math.cos(angle)), radius * (1 + math.sin(angle))
        places[rank] = NodePosition(x + 30, y + 30, -1)
    return NodeLayout(places, 2 * radius + 60, 2 * radius + 60, 52.0)


def _grid(topology: Topology, side: int) -> NodeLayout:
    pitch = 84.0
    places: dict[Node, NodePosition] = {
        rank: NodePosition(60 + pitch * (rank % side), 60 + pitch * (rank // side), -1) for rank in topology.ranks
    }
    rows = -(-topology.size // side)
    return NodeLayout(places, pitch * (side - 1) + 120, pitch * (rows - 1) + 120, pitch)


def _layered(topology: Topology) -> NodeLayout:
    layers = layers_of(topology)
    pitch = min(72.0, max(30.0, 1150.0 / topology.size))
    across: dict[Node, float] = dict(zip(topology.ranks, _row(topology, pitch), strict=True))
    for layer in layers[1:]:
        across.update(_spread(topology, layer, across))
    left, right = min(across.values()), max(across.values())
    top = _headroom(topology, layers, across)
    rise = [LAYER + 0.05 * (right - left) if layer else 0.0 for layer in range(len(layers))]
    height = top + sum(rise)
    places, y = {}, height
    for number, layer in enumerate(layers):
        y -= rise[number]
        places.update({node: NodePosition(across[node] - left + 40, y, number) for node in layer})
    return NodeLayout(places, right - left + 80, height, pitch)


def layers_of(topology: Topology) -> list[list[Node]]:
    """Return the ranks, then the nodes next to a rank, then those next to these, and so on; at last lone ones."""
    found = nx.bfs_layers(topology.graph.to_undirected(as_view=True), list(topology.ranks))
    layers: list[list[Node]] = [sorted(layer, key=order) for layer in found]
    lone = sorted(set(topology.graph).difference(*layers), key=order)
    return [*layers, *([lone] if lone else [])]


def groups_of(topology: Topology) -> list[list[tuple[str, range]]]:
    """Return the ranks that belong together, with their names: by levels but the innermost, the outermost first.

    Where there is only one level, as for machines of different sizes, they are grouped by machines.
    """
    if len(topology.levels) < 2:
        machines = [(host.name, range(host.ranks[0], host.ranks[-1] + 1)) for host in topology.hosts]
        covered = [rank for _, ranks in machines for rank in ranks]
        return [machines] if len(machines) > 1 and covered == list(topology.ranks) else []
    found = []
    for outer, level in enumerate(topology.levels[:-1]):
        size = math.prod(inner.count for inner in topology.levels[outer + 1 :])
        places = [topology.coordinates(first)[: outer + 1] for first in range(0, topology.size, size)]
        names = [f"{level.name} {', '.join(map(str, place))}" for place in places]
        found.append([(name, range(i * size, (i + 1) * size)) for i, name in enumerate(names)])
    return found


def _row(topology: Topology, pitch: float) -> Iterator[float]:
    """Yield the ranks from left to right, with a gap where a group begins."""
    begins = Counter(ranks[0] for groups in groups_of(topology) for _, ranks in groups)
    x = 0.0
    for rank in topology.ranks:
        if rank:
            x += pitch + begins[rank] * min(26.0, 0.6 * pitch)
        yield x


def _spread(topology: Topology, layer: Sequence[Node], across: Mapping[Node, float]) -> dict[Node, float]:
    """Place each node above the middle of its links below, as near as room allows."""
    wanted: dict[Node, float] = {}
    for node in layer:
        below = [
            across[other]
            for other in (*topology.graph.successors(node), *topology.graph.predecessors(node))
            if other in across
        ]
        wanted[node] = sum(below) / len(below) if below else 0.0
    ordered = sorted(layer, key=lambda node: (wanted[node], order(node)))
    room = [width_of_node(topology, node, len(layer)) + 10 for node in ordered]
    return dict(zip(ordered, _apart([wanted[node] for node in ordered], room), strict=True))


def width_of_node(topology: Topology, node: Node, crowd: int) -> float:
    """Return the width of a node among ``crowd`` of its layer: enough for its name if there is room."""
    return 6.2 * len(topology.label(node)) + 14 if crowd <= 24 else 14.0


def _apart(wanted: Sequence[float], room: Sequence[float]) -> list[float]:
    """Return the positions nearest to ``wanted``, ascending, such that neighbours have their room (least squares)."""
    offsets = [0.0]
    for a, b in itertools.pairwise(room):
        offsets.append(offsets[-1] + (a + b) / 2)
    shifts = [want - offset for want, offset in zip(wanted, offsets, strict=True)]
    least = min(shifts)
    moved = rising([shift - least for shift in shifts], [1.0] * len(shifts))
    return [position + least + offset for position, offset in zip(moved, offsets, strict=True)]


def _headroom(topology: Topology, layers: Sequence[Sequence[Node]], across: Mapping[Node, float]) -> float:
    top = set(layers[-1]) if len(layers) > 1 else set()
    spans = [abs(across[a] - across[b]) for a, b in topology.graph.edges if a in top and b in top]
    return 34.0 + (arc_height(max(spans)) if spans else 0.0)


def arc_height(span: float) -> float:
    """Return the height of the arc between two nodes of a layer."""
    return 14.0 + 2.4 * math.sqrt(span)
