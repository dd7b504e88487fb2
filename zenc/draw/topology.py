"""The drawing of a topology: ranks and switches by layers, links as wide as their bandwidth, levels as boxes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from zenc.common.wording import count
from zenc.draw.colour import oklch
from zenc.draw.layers import NodeLayout, NodePosition, arc_height, groups_of, layers_of, node_layout, width_of_node
from zenc.draw.links import Curve, Room, labels
from zenc.draw.scene import Mark, Scene, group, path, rectangle, text
from zenc.draw.sheet import MARGIN, Sheet, cut
from zenc.errors import Diagnostic, DrawingError
from zenc.topology.model import Link, Node, Topology

MOST_RANKS = 256
MOST_LINKS = 4_000
SHORT = 3
MOST_OF_A_FAN = 4
"""Most links alike below one switch that have a label each."""
COLOURS = {
    "nvlink": oklch(0.66, 0.16, 145),
    "c2c": oklch(0.72, 0.14, 120),
    "pcie": oklch(0.70, 0.15, 75),
    "network": oklch(0.62, 0.15, 255),
    "system": oklch(0.60, 0.14, 320),
    "link": oklch(0.64, 0.11, 195),
}
NODES = {"rank": oklch(0.62, 0.15, 255), "switch": oklch(0.60, 0.10, 195), "nic": oklch(0.66, 0.14, 50)}
OTHER = oklch(0.58, 0.03, 260)


def draw_topology(topology: Topology) -> Scene:
    """Return the drawing of ``topology``; raises DrawingError (``drawing-too-large``) for one too large to follow."""
    links = len(topology.links)
    if topology.size > MOST_RANKS or links > MOST_LINKS:
        message = (
            f"a drawing has room for {MOST_RANKS} ranks and {MOST_LINKS:,} links, "
            f"and {topology.name} has {topology.size:,} and {links:,}"
        )
        help = "draw a smaller one of the same shape"
        raise DrawingError(Diagnostic("drawing-too-large", message, None, (), help))
    title = f"{topology.name}: {count(topology.size, 'rank')}"
    return _Map(topology.name, topology.doc, title, topology, node_layout(topology)).picture()


@dataclass(slots=True)
class _Map(Sheet):
    topology: Topology
    at: NodeLayout
    left: float = MARGIN
    top: float = 0.0
    fans: dict[tuple[Node, float, bool], list[Curve]] = field(default_factory=lambda: defaultdict(list))
    """Links alike at one switch; each link between ranks is a fan of its own."""
    rooms: list[Room] = field(default_factory=list)
    """The places of the nodes."""

    def picture(self) -> Scene:
        width = max(self.at.width + 2 * MARGIN, 520.0)
        self.left = (width - self.at.width) / 2
        self.heading(self._facts(), width)
        self.top = self.y + 18
        painted = [*self._boxes(), *self._links(), *self._spots()]
        bottom = self.top + self.at.height + self._depth() + 44 * (self.at.pitch > 0)
        self._legend(bottom)
        painted += labels(self._labelled(), self.rooms, (width, bottom - 18))
        return self.scene(round(width), round(bottom + MARGIN + 18), f"{self.doc} {self._facts()}".strip(), painted)

    def _facts(self) -> str:
        topology = self.topology
        levels = " of ".join(count(level.count, level.name) for level in topology.levels)
        if all(len(level.name) < SHORT for level in topology.levels):  # sides of a grid
            levels = " x ".join(str(level.count) for level in topology.levels)
        facts = [count(topology.size, "rank"), *([levels] if len(topology.levels) > 1 else [])]
        switches = len(topology.switches)
        facts += [count(switches, "other node")] if switches else []
        return " \N{MIDDLE DOT} ".join([*facts, f"{len(topology.links):,} links, each direction counted"])

    def _place(self, node: Node) -> NodePosition:
        place = self.at.places[node]
        return NodePosition(place.x + self.left, place.y + self.top, place.layer)

    def _spots(self) -> Iterator[Mark]:
        crowds = {node: len(layer) for layer in layers_of(self.topology) for node in layer}
        side = min(30.0, self.at.pitch - 6)
        for node, kind in self.topology.graph.nodes(data="kind"):
            place, label = self._place(node), self.topology.label(node)
            if isinstance(node, int):
                room, shown, title = Room(place.x, place.y, side, side), str(node), f"rank {node}: {label}"
            else:
                width = width_of_node(self.topology, node, crowds.get(node, 99))
                shown, title = label if width > 14 else "", f"{label} ({kind})"
                room = Room(place.x, place.y, width, 20 if shown else 14)
            self.rooms.append(room)
            corner = room.x - room.width / 2, room.y - room.height / 2
            box = rectangle(*corner, room.width, room.height, "edge", NODES.get(kind, OTHER), 6)
            words = [text(room.x, room.y + 4, shown, "inside", "middle")] if shown else []
            yield group("spot", (box, *words), title, kind=str(kind))

    def _links(self) -> Iterator[Mark]:
        slowest = min((link.bandwidth for link in self.topology.links), default=1.0)
        for link in self.topology.links:
            both = self.topology.graph.has_edge(link.target, link.source)
            back = self.topology.link(link.target, link.source) if both else None
            arrow = back is None or back.bandwidth != link.bandwidth
            if not arrow and not _first(link):
                continue  # drawn once for both ways
            width = min(8.0, 1.3 + 0.9 * math.log2(link.bandwidth / slowest))
            labels = [self.topology.label(end) for end in (link.source, link.target)]
            title = f"{labels[0]} {'to' if arrow else 'and'} {labels[1]}: {rate(link.bandwidth)}, {link.kind}"
            curve = self._curve(link, bent=back is not None and arrow)
            colour = COLOURS.get(link.kind, OTHER)
            head = [path(curve.head(width), fill=colour)] if arrow else []
            above = max(link.source, link.target, key=lambda end: self.at.places[end].layer)
            self.fans[above if self._place(above).layer > 0 else len(self.fans), link.bandwidth, arrow].append(curve)
            drawn = path(curve.path, "arrow", stroke=colour, stroke_width=width)
            yield group("link", (drawn, *head), title, kind=link.kind)

    def _labelled(self) -> Iterator[tuple[Curve, str, bool]]:
        """Yield the curves with labels: one for many links alike of one switch."""
        for (_, bandwidth, arrow), fan in self.fans.items():
            if len(fan) > MOST_OF_A_FAN:
                yield fan[len(fan) // 2], f"{len(fan)} \N{MULTIPLICATION SIGN} {rate(bandwidth)}", arrow
            else:
                yield from ((curve, rate(bandwidth), arrow) for curve in fan)

    def _curve(self, link: Link, bent: bool) -> Curve:
        one, other = self._place(link.source), self._place(link.target)
        if one.layer < 0:
            control = self._around(one, other, bent)
        elif one.layer == other.layer:
            rise = arc_height(abs(one.x - other.x)) * (1 if one.layer == 0 else -1)
            start = 15 if one.layer == 0 else -10
            one, other = (NodePosition(p.x, p.y + start, p.layer) for p in (one, other))
            control = ((one.x, one.y + rise * 1.3), (other.x, other.y + rise * 1.3))
        else:
            middle = (one.y + other.y) / 2
            shift = 5.0 * bent * (1 if one.y > other.y else -1)
            control = ((one.x + shift, middle), (other.x + shift, middle))
        return Curve((one.x, one.y), *control, (other.x, other.y))

    def _around(
        self, one: NodePosition, other: NodePosition, bent: bool
    ) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the bend of a link: none between neighbours, a bow past the nodes between two far apart in a row."""
        dx, dy = other.x - one.x, other.y - one.y
        length = math.hypot(dx, dy) or 1.0
        far = length > 1.5 * self.at.pitch and (abs(dx) < 1 or abs(dy) < 1)
        bow = (0.22 * self.at.pitch + 0.09 * length) * far + 7.0 * bent
        nx, ny = -dy / length * bow, dx / length * bow
        return (one.x + dx / 4 + nx, one.y + dy / 4 + ny), (one.x + 3 * dx / 4 + nx, one.y + 3 * dy / 4 + ny)

    def _depth(self) -> float:
        """Return the room below the ranks, for arcs between them, and the boxes of the levels."""
        if any(place.layer < 0 for place in self.at.places.values()):
            return 0.0
        spans = [
            abs(self.at.places[a].x - self.at.places[b].x)
            for a, b in self.topology.graph.edges
            if isinstance(a, int) and isinstance(b, int)
        ]
        return 24.0 + (arc_height(max(spans)) if spans else 0.0) + 22.0 * len(groups_of(self.topology))

    def _boxes(self) -> Iterator[Mark]:
        nested = groups_of(self.topology)
        if any(place.layer < 0 for place in self.at.places.values()):
            return
        arcs = self._depth() - 24.0 - 22.0 * len(nested)
        for outer, groups in enumerate(nested):
            inside = len(nested) - 1 - outer
            pad = 20.0 + 3.0 * inside
            for name, ranks in groups:
                first, last = self._place(ranks[0]), self._place(ranks[-1])
                bottom = first.y + arcs + 20 + 22.0 * (inside + 1)
                left, width = first.x - pad, last.x - first.x + 2 * pad
                room = max(3, int(width / 6.4))
                short = cut(name if len(name) <= room else name.rpartition(" ")[2], room)
                self.texts.append(text(left + width / 2, bottom - 7, short, "quiet", "middle"))
                yield rectangle(left, first.y - 21, width, bottom - first.y + 21, "level", rx=9)

    def _legend(self, y: float) -> None:
        x = MARGIN
        for kind in sorted({link.kind for link in self.topology.links}):
            rates = {link.bandwidth for link in self.topology.links if link.kind == kind}
            words = f"{kind} {rate(min(rates))}" + (f" to {rate(max(rates))}" if len(rates) > 1 else "")
            self.swatches.append(rectangle(x, y - 9, 18, 12, fill=COLOURS.get(kind, OTHER), rx=2))
            self.texts.append(text(x + 24, y, words, "quiet"))
            x += 24 + 6.4 * len(words) + 22


def _first(link: Link) -> bool:
    """Return whether the link is the one drawn of two directions that are alike."""
    one, other = (str(end) if isinstance(end, str) else f"{end:09d}" for end in (link.source, link.target))
    return (isinstance(link.source, str), one) < (isinstance(link.target, str), other)


def rate(bandwidth: float) -> str:
    """Return ``25 GB/s``."""
    for unit, scale in (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if bandwidth >= scale:
            return f"{bandwidth / scale:.4g} {unit}"
    return f"{bandwidth:.4g} B/s"
