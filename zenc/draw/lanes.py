"""Layout of a scheme's drawing, in pixels: ranks, parts and steps.

Time runs down. Every rank is a column; what it holds of each part is a bar in that column, as high as the share of
the ranks that have contributed. Of a tensor in one part, the bars stand for the contributors instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from zenc.draw.steps import DrawnStep

MARGIN = 28.0
LABELS = 128.0
"""The column at the left, with the names of the steps."""
NODE_HEIGHT = 30.0
HEAD = 6.0
"""Length of the head of an arrow."""
PAD = 5.0
"""Inside a node, around its bars."""


@dataclass(frozen=True, slots=True)
class Grid:
    """``bars`` is the number of bars in a node; ``pitch`` the distance between two of them."""

    size: int
    parts: int
    pitch: float
    column: float

    @classmethod
    def of(cls, size: int, parts: int) -> Grid:
        """The grid for ``size`` ranks: the more of them, the narrower bars and gaps."""
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
        """The width of what a rank holds, with its padding."""
        return self.pitch * self.bars + 2 * PAD

    @property
    def right(self) -> float:
        """The right edge of the last column."""
        return MARGIN + LABELS + self.column * self.size

    def left_of(self, rank: int) -> float:
        """The left edge of a rank's nodes."""
        return MARGIN + LABELS + self.column * rank + (self.column - self.node_width) / 2

    def middle_of(self, rank: int) -> float:
        """The middle of a rank's nodes."""
        return self.left_of(rank) + self.node_width / 2

    def bar(self, rank: int, index: int) -> float:
        """The middle of a bar."""
        return self.left_of(rank) + PAD + self.pitch * (index + 0.5)

    def port(self, rank: int, first: int, last: int, whole: bool) -> float:
        """The x at which a move of the parts ``first .. last``, or of the ``whole``, leaves or reaches ``rank``."""
        if whole:
            return self.middle_of(rank)
        return (self.bar(rank, first) + self.bar(rank, last)) / 2

    def band_height(self, step: DrawnStep) -> float:
        """More room for arrows that lie flat, and for many of them."""
        farthest = max(abs(move.src - move.dst) for move in step.moves) * self.column
        crowd = len(step.moves) / self.size
        return round(min(300.0, max(58.0, 40.0 + 0.085 * farthest + 9.0 * crowd)))
