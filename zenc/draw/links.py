"""Links and moves as curves, with heads where they lead one way, and labels where there is room."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from zenc.draw.scene import Mark, text
from zenc.draw.sheet import LABEL_SIZE, width_of

TRIED = (0.5, 0.4, 0.6, 0.3, 0.7, 0.22, 0.78)
"""Places of a label on a curve, in the order in which they are tried: the middle first."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Curve:
    """A cubic Bezier curve, in pixels."""

    start: Point
    near: Point
    far: Point
    end: Point

    @property
    def path(self) -> str:
        """The curve as data of an SVG ``path``."""
        (x0, y0), (x1, y1), (x2, y2), (x3, y3) = self.start, self.near, self.far, self.end
        return f"M{x0:.1f} {y0:.1f}C{x1:.1f} {y1:.1f} {x2:.1f} {y2:.1f} {x3:.1f} {y3:.1f}"

    def at(self, t: float) -> Point:
        """Return the point ``t`` of the way along."""
        weights = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
        points = self.start, self.near, self.far, self.end
        x, y = (sum(w * p[axis] for w, p in zip(weights, points, strict=True)) for axis in (0, 1))
        return x, y

    def head(self, width: float) -> str:
        """Return an arrow head in the middle, where no node covers it."""
        (x0, y0), (x1, y1), (x2, y2), (x3, y3) = self.start, self.near, self.far, self.end
        x, y = self.at(0.5)
        dx, dy = x3 + x2 - x1 - x0, y3 + y2 - y1 - y0
        length, half = math.hypot(dx, dy) or 1.0, 3.0 + 0.6 * width
        ux, uy = dx / length, dy / length
        points = ((1.6 * half, 0.0), (-half, half), (-half, -half))
        return "M" + "L".join(f"{x + ux * a - uy * b:.1f} {y + uy * a + ux * b:.1f}" for a, b in points) + "Z"


@dataclass(frozen=True, slots=True)
class Room:
    """A rectangle, by its middle."""

    x: float
    y: float
    width: float
    height: float

    def meets(self, other: Room) -> bool:
        """Return whether it overlaps ``other``."""
        across, down = (self.width + other.width) / 2, (self.height + other.height) / 2
        return abs(self.x - other.x) < across and abs(self.y - other.y) < down


def labels(wanted: Iterable[tuple[Curve, str, bool]], spots: Sequence[Room], within: Point) -> list[Mark]:
    """Return words beside curves, as many as find room: none lies on another one, or on a node, or off the paper.

    ``wanted``: a curve, its words, and whether it has a head in the middle.
    """
    taken = [Room(spot.x, spot.y, spot.width + 4, spot.height + 4) for spot in spots]
    paper, found = Room(within[0] / 2, within[1] / 2, *within), list[Mark]()
    for curve, words, headed in wanted:
        size, tried = (width_of(words, LABEL_SIZE) + 8, LABEL_SIZE + 4), TRIED[1:] if headed else TRIED
        places = (Room(*curve.at(t), *size) for t in tried)
        free = (room for room in places if not any(map(room.meets, taken)) and _inside(room, paper))
        if room := next(free, None):
            taken.append(room)
            found.append(text(room.x, room.y + 3.5, words, "label", "middle"))
    return found


def _inside(room: Room, paper: Room) -> bool:
    across, down = (paper.width - room.width) / 2, (paper.height - room.height) / 2
    return abs(room.x - paper.x) <= across and abs(room.y - paper.y) <= down
