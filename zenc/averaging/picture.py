"""An averaging as a picture: a row for each step of a period, a box for each rank, in the colour of its group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zenc.averaging.mixing import PeriodProof
from zenc.averaging.model import Averaging, division_text, timing_text
from zenc.common.wording import count, ranks_text
from zenc.draw.colour import distinct
from zenc.draw.scene import Mark, Scene, group, rectangle, text
from zenc.draw.sheet import MARGIN, Sheet, cut
from zenc.errors import Diagnostic, DrawingError

BOX, LABEL = 22.0, 230.0
"""Pixels: the side of a box, and the room before the boxes of a row."""
LEAST_WIDTH = 700.0
MOST_RANKS = 64


@dataclass(frozen=True, slots=True)
class AveragingDrawing:
    """The drawing of an averaging among the ranks of ``proof``."""

    averaging: Averaging
    proof: PeriodProof
    picture: Scene

    def svg(self) -> str:
        """Return the text of an SVG file, which needs no other file, font or script."""
        return self.picture.svg()

    def words(self) -> str:
        """Return the subject of the drawing, in a line."""
        return f"{self.picture.title}, {count(self.averaging.period, 'step')} among {count(self.proof.size, 'rank')}"

    def to_json(self) -> dict[str, object]:
        """Return the groups of each step as JSON data."""
        steps = zip(self.averaging.steps, self.proof.steps, strict=True)
        told = [
            {"division": division_text(each), "groups": [list(group) for group in groups]} for each, groups in steps
        ]
        return {"averaging": self.averaging.name, "ranks": self.proof.size, "steps": told}


def draw_averaging(averaging: Averaging, proof: PeriodProof) -> AveragingDrawing:
    """Return the picture of ``averaging``; raises DrawingError (``drawing-too-large``) for too many ranks."""
    if proof.size > MOST_RANKS:
        message = f"a drawing of an averaging shows {MOST_RANKS} ranks at most, not {proof.size}"
        raise DrawingError(Diagnostic("drawing-too-large", message, help="zenc explain --json has all groups"))
    title = f"Averaging {averaging.name}"
    sheet = Sheet(averaging.name, averaging.doc, title)
    width = max(LEAST_WIDTH, LABEL + BOX * proof.size + 2 * MARGIN)
    period = f"a period of {count(averaging.period, 'step')}, after which all {proof.size} ranks have the mean"
    if averaging.words:
        period = timing_text(averaging)
    sheet.heading(f"{period}; each group by {averaging.sums.name}", width)
    sheet.y += 26
    for rank in range(proof.size):
        sheet.texts.append(text(_left(rank) + BOX / 2, sheet.y, str(rank), "quiet", "middle"))
    boxes = [box for step in range(averaging.period) for box in _step(sheet, averaging, proof, step)]
    words = "A box is a rank; ranks of one colour in a row average with each other in that step."
    return AveragingDrawing(averaging, proof, sheet.scene(width, sheet.y + BOX + MARGIN, words, boxes))


def _left(rank: int) -> float:
    return MARGIN + LABEL + BOX * rank


def _step(sheet: Sheet, averaging: Averaging, proof: PeriodProof, step: int) -> Iterator[Mark]:
    sheet.write(BOX + 6, cut(f"step {step}: {division_text(averaging.steps[step])}", 34), "rank")
    groups = proof.steps[step]
    for number, (ranks, colour) in enumerate(zip(groups, distinct(len(groups)), strict=True)):
        for rank in ranks:
            title = f"step {step}: rank {rank} averages with {ranks_text(ranks)}"
            box = rectangle(_left(rank) + 1, sheet.y - BOX / 2 - 4, BOX - 2, BOX - 2, fill=colour)
            yield group("from", [box], title, rule=number)
