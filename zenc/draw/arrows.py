"""The moves of a step as arrows, with their colours and labels."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from zenc.draw.colour import RAMP, palette, ramp
from zenc.draw.lanes import HEAD, Grid
from zenc.draw.picture import Arrow, ColourGradient, Text
from zenc.draw.steps import DrawnStep, Move
from zenc.draw.text_metrics import span, width_of
from zenc.format_units import seconds_text

MOST_LABELS = 3
"""Moves of one rank in one step that still have labels."""
LABEL_SIZE = 9.5
"""Of the style class of labels, in pixels."""
STEP = 4
"""Between two colours of load."""


@dataclass(slots=True)
class Painter:
    """Draws arrows and remembers the gradients that they need."""

    grid: Grid
    id: str
    limit: float = 0.0
    gradients: dict[str, ColourGradient] = field(default_factory=dict)
    colours: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.colours = palette(self.grid.bars)

    def arrows(self, step: DrawnStep, top: float, bottom: float) -> tuple[Arrow, ...]:
        """The moves of ``step`` between two rows; the widest first, so that no other is hidden."""
        widest_first = sorted(step.moves, key=lambda move: (move.first - move.last, move.src, move.dst))
        return tuple(self._arrow(move, step, top, bottom) for move in widest_first)

    def labels(self, step: DrawnStep, top: float, bottom: float) -> tuple[Text, ...]:
        """The parts that the arrows carry, as labels where there is room; none lies on another."""
        busiest = max(Counter(move.src for move in step.moves).values())
        told = not step.whole or any(move.origin >= 0 for move in step.moves)
        if busiest > MOST_LABELS or not told:
            return ()
        kept: list[Text] = []
        for label in (self._label(move, step, top, bottom) for move in step.moves):
            if not any(_overlap(label, other) for other in kept):
                kept.append(label)
        return tuple(kept)

    def colour(self, move: Move, step: DrawnStep, top: float, bottom: float) -> str:
        """Of its part; several parts blend. What is in no parts has the colour of who sends, or of whose it is.

        Where loads are known, that of the busiest link on the way.
        """
        if move.heat:
            return ramp()[heat_class(move.heat.seconds, self.limit)]
        if step.whole:
            return self.colours[move.origin if move.origin >= 0 else move.src]
        if move.first == move.last:
            return self.colours[move.first]
        name = f"{self.id}-{move.first}-{move.last}-{top:.0f}"
        chosen = self.colours[move.first : move.last + 1]
        self.gradients[name] = ColourGradient(name, top, bottom, chosen)
        return f"url(#{name})"

    def _arrow(self, move: Move, step: DrawnStep, top: float, bottom: float) -> Arrow:
        x1, x2 = (self.grid.port(rank, move.first, move.last, step.whole) for rank in (move.src, move.dst))
        width = 1.6 if step.whole else min(9.0, 1.5 + 0.45 * self.grid.pitch * (move.last - move.first))
        colour, tip = self.colour(move, step, top, bottom), bottom - 2
        half = 2.6 + 0.5 * width
        bend = (tip - HEAD - top) * 0.55
        path = (
            f"M{x1:.1f} {top:.1f}C{x1:.1f} {top + bend:.1f} {x2:.1f} {tip - HEAD - bend:.1f} {x2:.1f} {tip - HEAD:.1f}"
        )
        head = f"M{x2 - half:.1f} {tip - HEAD:.1f}L{x2 + half:.1f} {tip - HEAD:.1f}L{x2:.1f} {tip:.1f}Z"
        end = colour if step.whole or move.heat else self.colours[move.last]
        return Arrow(path, head, colour, end, width, self._title(move, step), move.src, move.dst)

    def _title(self, move: Move, step: DrawnStep) -> str:
        what = f"part{'s' * (move.last > move.first)} {span(move.first, move.last)}"
        if step.whole:
            what = "index sets" if step.announces else "all"
        whose = f" of rank {move.origin}" if move.origin >= 0 else ""
        place = f"\n{move.place}" if move.place else ""
        if move.heat:
            place = f"\nbusiest link on the way: {move.heat.link}, {seconds_text(move.heat.seconds)}{place}"
        return f"{step.phase}, step {step.number}: rank {move.src} sends {what}{whose} to rank {move.dst}{place}"

    def _label(self, move: Move, step: DrawnStep, top: float, bottom: float) -> Text:
        words = "" if step.whole else span(move.first, move.last)
        if move.origin >= 0:
            words = f"{words} of {move.origin}".strip()
        x1, x2 = (self.grid.port(rank, move.first, move.last, step.whole) for rank in (move.src, move.dst))
        colour = self.colours[move.last] if move.first == move.last and not step.whole else ""
        x, y = _on_curve(x1, x2, top, bottom - HEAD - 2, 0.17 if x2 > x1 else 0.12)
        return Text(x, y + 3, words, "label", "middle", colour)


def _overlap(one: Text, other: Text) -> bool:
    room = (width_of(one.words, LABEL_SIZE) + width_of(other.words, LABEL_SIZE)) / 2 + 8
    return abs(one.x - other.x) < room and abs(one.y - other.y) < LABEL_SIZE


def heat_class(seconds: float, limit: float) -> int:
    """The place in the ramp: the last one for the greatest load, each before it for loads ``STEP`` times less."""
    steps = math.log(limit / seconds, STEP) if 0 < seconds < limit else 0.0 if seconds else len(RAMP)
    return max(0, len(RAMP) - 1 - int(steps))


def _on_curve(x1: float, x2: float, top: float, bottom: float, t: float) -> tuple[float, float]:
    """A point of the curve that ``_arrow`` draws, ``t`` of the way along."""
    bend, near, far = (bottom - top) * 0.55, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t)
    start, end = (1 - t) ** 3, t**3
    return (start + near) * x1 + (far + end) * x2, start * top + near * (top + bend) + far * (
        bottom - bend
    ) + end * bottom
