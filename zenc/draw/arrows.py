"""The moves of a step as arrows, with their colours and labels; and the grid of ranks and steps, in pixels.

Time runs down. Every rank is a column; its piece of each part is a bar in that column, as high as the share of the
ranks that have contributed. For a tensor in one part, the bars stand for the contributors instead.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from zenc.common.wording import seconds_text
from zenc.draw.colour import palette, ramp
from zenc.draw.links import Curve, Room
from zenc.draw.scene import Mark, gradient, group, path, text
from zenc.draw.sheet import LABEL_SIZE, MARGIN, width_of
from zenc.draw.shown import heat_class
from zenc.draw.steps import DrawnStep, Move

LABELS = 128.0
"""The width of the column at the left, with the names of the steps."""
NODE_HEIGHT = 30.0
HEAD = 6.0
"""Length of the head of an arrow."""
PAD = 5.0
"""The padding inside a node, around its bars."""


@dataclass(frozen=True, slots=True)
class Grid:
    """``bars`` is the number of bars in a node; ``pitch`` the distance between two of them."""

    size: int
    parts: int
    pitch: float
    column: float

    @classmethod
    def of(cls, size: int, parts: int) -> Grid:
        """Return the grid for ``size`` ranks: the more of them, the narrower bars and gaps."""
        bars = max(size, parts)
        pitch = max(3.0, min(11.0, 72.0 / bars))
        node = pitch * bars + 2 * PAD
        gap = max(22.0, min(70.0, 260.0 / size))
        return cls(size, parts, pitch, max(node + gap, 62.0))

    @property
    def bars(self) -> int:
        """The number of bars that a node has room for."""
        return max(self.size, self.parts)

    @property
    def node_width(self) -> float:
        """The width of a rank's pieces, with padding."""
        return self.pitch * self.bars + 2 * PAD

    @property
    def right(self) -> float:
        """The right edge of the last column."""
        return MARGIN + LABELS + self.column * self.size

    def left_of(self, rank: int) -> float:
        """Return the left edge of a rank's nodes."""
        return MARGIN + LABELS + self.column * rank + (self.column - self.node_width) / 2

    def middle_of(self, rank: int) -> float:
        """Return the middle of a rank's nodes."""
        return self.left_of(rank) + self.node_width / 2

    def bar(self, rank: int, index: int) -> float:
        """Return the middle of a bar."""
        return self.left_of(rank) + PAD + self.pitch * (index + 0.5)

    def port(self, rank: int, first: int, last: int, whole: bool) -> float:
        """Return the x at which a move of the parts ``first .. last``, or of the ``whole``, meets ``rank``."""
        if whole:
            return self.middle_of(rank)
        return (self.bar(rank, first) + self.bar(rank, last)) / 2

    def band_height(self, step: DrawnStep) -> float:
        """Return the height of a step's band, with more room for arrows that lie flat, and for many of them."""
        farthest = max(abs(move.src - move.dst) for move in step.moves) * self.column
        crowd = len(step.moves) / self.size
        return round(min(300.0, max(58.0, 40.0 + 0.085 * farthest + 9.0 * crowd)))


MOST_LABELS = 3
"""Most moves of one rank in one step that still have labels."""


@dataclass(slots=True)
class Painter:
    """A painter of arrows, which keeps the gradients that they need."""

    grid: Grid
    id: str
    limit: float = 0.0
    gradients: dict[str, Mark] = field(default_factory=dict)
    colours: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.colours = palette(self.grid.bars)

    def arrows(self, step: DrawnStep, top: float, bottom: float) -> list[Mark]:
        """Return the moves of ``step`` between two rows; the widest first, so that no other is hidden."""
        widest_first = sorted(step.moves, key=lambda move: (move.first - move.last, move.src, move.dst))
        return [self._arrow(move, step, top, bottom) for move in widest_first]

    def labels(self, step: DrawnStep, top: float, bottom: float) -> list[Mark]:
        """Return the parts that the arrows carry, as labels where there is room; no label lies on another."""
        busiest = max(Counter(move.src for move in step.moves).values())
        told = not step.whole or any(move.origin >= 0 for move in step.moves)
        if busiest > MOST_LABELS or not told:
            return []
        kept: dict[Room, Mark] = {}
        for room, label in (self._label(move, step, top, bottom) for move in step.moves):
            if not any(map(room.meets, kept)):
                kept[room] = label
        return list(kept.values())

    def colour(self, move: Move, step: DrawnStep, top: float, bottom: float) -> str:
        """Return the colour of a move's part; several parts blend. Without parts it is the sender's, or the origin's.

        Where loads are known, it is that of the busiest link on the way.
        """
        if move.heat:
            return ramp()[heat_class(move.heat.seconds, self.limit)]
        if step.whole:
            return self.colours[move.origin if move.origin >= 0 else move.src]
        if move.first == move.last:
            return self.colours[move.first]
        name = f"{self.id}-{move.first}-{move.last}-{top:.0f}"
        chosen = self.colours[move.first : move.last + 1]
        self.gradients[name] = gradient(name, top, bottom, chosen)
        return f"url(#{name})"

    def _curve(self, move: Move, step: DrawnStep, top: float, bottom: float) -> Curve:
        """Return the arrow without its head."""
        x1, x2 = (self.grid.port(rank, move.first, move.last, step.whole) for rank in (move.src, move.dst))
        end = bottom - 2 - HEAD
        bend = (end - top) * 0.55
        return Curve((x1, top), (x1, top + bend), (x2, end - bend), (x2, end))

    def _arrow(self, move: Move, step: DrawnStep, top: float, bottom: float) -> Mark:
        curve = self._curve(move, step, top, bottom)
        width = 1.6 if step.whole else min(9.0, 1.5 + 0.45 * self.grid.pitch * (move.last - move.first))
        colour, half, (x, y) = self.colour(move, step, top, bottom), 2.6 + 0.5 * width, curve.end
        head = f"M{x - half:.1f} {y:.1f}L{x + half:.1f} {y:.1f}L{x:.1f} {y + HEAD:.1f}Z"
        end = colour if step.whole or move.heat else self.colours[move.last]
        drawn = path(curve.path, "arrow", stroke=colour, stroke_width=width), path(head, fill=end)
        return group("move", drawn, self._title(move, step), src=move.src, dst=move.dst)

    def _title(self, move: Move, step: DrawnStep) -> str:
        what = f"part{'s' * (move.last > move.first)} {_span(move.first, move.last)}"
        if step.whole:
            what = "index sets" if step.announces else "all"
        whose = f" of rank {move.origin}" if move.origin >= 0 else ""
        place = f"\n{move.place}" if move.place else ""
        if move.heat:
            place = f"\nbusiest link on the way: {move.heat.link}, {seconds_text(move.heat.seconds)}{place}"
        return f"{step.phase}, step {step.number}: rank {move.src} sends {what}{whose} to rank {move.dst}{place}"

    def _label(self, move: Move, step: DrawnStep, top: float, bottom: float) -> tuple[Room, Mark]:
        words = "" if step.whole else _span(move.first, move.last)
        if move.origin >= 0:
            words = f"{words} of {move.origin}".strip()
        colour = self.colours[move.last] if move.first == move.last and not step.whole else ""
        x, y = self._curve(move, step, top, bottom).at(0.17 if move.dst > move.src else 0.12)
        room = Room(x, y + 3, width_of(words, LABEL_SIZE) + 8, LABEL_SIZE)
        return room, text(x, y + 3, words, "label", "middle", colour)


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}\N{EN DASH}{last}"
