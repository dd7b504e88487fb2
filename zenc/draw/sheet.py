"""The paper of a drawing, which fills up from the top, and the approximate widths and breaks of texts on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from zlib import crc32

from zenc.draw.colour import RAMP, ramp
from zenc.draw.scene import Mark, Scene, rectangle, text

MARGIN = 28.0
WIDE = 0.56
"""The mean width of a letter over its size, in the fonts that browsers take for ``sans-serif``."""
LABEL_SIZE = 9.5
"""The size of the style class of labels, in pixels."""


@dataclass(slots=True)
class Sheet:
    """The paper of a picture called ``title``, with ``name`` and ``doc`` at its head, filled down to ``y``."""

    name: str
    doc: str
    title: str
    y: float = field(default=MARGIN, kw_only=True)
    texts: list[Mark] = field(default_factory=list, kw_only=True)
    swatches: list[Mark] = field(default_factory=list, kw_only=True)

    @property
    def id(self) -> str:
        """A name that keeps apart the names inside several pictures of one page."""
        return f"zenc-{crc32(self.title.encode('utf-8', 'replace')):08x}"

    def write(self, down: float, words: str, style: str, x: float = MARGIN) -> None:
        """Write ``words``, ``down`` pixels further down."""
        self.y += down
        self.texts.append(text(x, self.y, words, style))

    def paragraph(self, down: float, words: str, style: str, size: float, width: float) -> None:
        """Write ``words`` in lines, as wide as a paper of ``width`` allows; each ``down`` pixels further down."""
        for line in wrapped(words, size, width - 2 * MARGIN):
            self.write(down, line, style)

    def swatch(self, x: float, width: float, colour: str) -> None:
        """Draw a square of a legend in the line of ``y``."""
        self.swatches.append(rectangle(x, self.y - 10, width, 12, fill=colour, rx=2))

    def scene(self, width: float, height: float, description: str, marks: Iterable[Mark]) -> Scene:
        """Return the drawing of ``marks``, with the legends and all texts over them."""
        painted = (*marks, *self.swatches, *self.texts)
        return Scene(width, height, self.id, self.title, description, painted)

    def heading(self, facts: str, width: float) -> None:
        """Write the name, its doc string, and ``facts`` about it."""
        self.write(14, cut(self.name, int((width - 2 * MARGIN) / 12)), "title")
        self.paragraph(20, self.doc, "doc", 12.5, width)
        self.paragraph(18, facts, "quiet", 11, width)

    def scale(self, down: float, label: str, most: str, meaning: str, width: float) -> None:
        """Write a legend of the colours of the ramp, the last of which stands for ``most``."""
        self.write(down, label, "quiet")
        x = MARGIN + 46
        for place, colour in enumerate(ramp()):
            self.swatch(x + 34.0 * place, 32.5, colour)
        self.texts.append(text(x + 34.0 * len(RAMP) + 8, self.y, most, "quiet"))
        self.paragraph(18, meaning, "quiet", 11, width)


def width_of(words: str, size: float) -> float:
    """Return the approximate width of ``words`` in pixels."""
    return WIDE * size * len(words)


def wrapped(words: str, size: float, room: float, most: int = 3) -> list[str]:
    """Return ``words`` in lines of at most ``room`` pixels; the rest after ``most`` lines is cut off."""
    columns = max(12, int(room / (WIDE * size)))
    lines: list[str] = []
    for word in words.split():
        if lines and len(lines[-1]) + 1 + len(word) <= columns:
            lines[-1] += f" {word}"
        else:
            lines.append(cut(word, columns))
    if len(lines) > most:
        lines = [*lines[: most - 1], cut(" ".join(lines[most - 1 :]), columns)]
    return lines


def cut(words: str, columns: int) -> str:
    """Return ``words``, or the part that fits ``columns`` letters."""
    return words if len(words) <= columns else f"{words[: columns - 1]}\N{HORIZONTAL ELLIPSIS}"
