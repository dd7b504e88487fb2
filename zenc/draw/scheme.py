"""The drawing of a scheme: who sends what to whom, step by step, and what everybody holds in between."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul
from zlib import crc32

import numpy as np

from zenc.draw.arrows import STEP, Painter
from zenc.draw.colour import ramp
from zenc.draw.lanes import LABELS, MARGIN, NODE_HEIGHT, PAD, Grid
from zenc.draw.picture import Band, Bars, Line, Node, Row, SchedulePicture, Swatch, Text
from zenc.draw.steps import DrawnStep, Holdings, Steps
from zenc.draw.text_metrics import cut, wrapped
from zenc.format_units import seconds_text
from zenc.plan.ir import Plan
from zenc.plurals import count

LEAST_WIDTH = 560.0
_SENDER = "have the colour of the sender"


def draw(plan: Plan, steps: Steps) -> SchedulePicture:
    """The drawing of ``steps``, which are those of ``plan``."""
    return _SchemeSheet(plan, steps).picture()


@dataclass(slots=True)
class _SchemeSheet:
    """The paper: fills up from the top."""

    plan: Plan
    shown: Steps
    y: float = MARGIN
    texts: list[Text] = field(default_factory=list)
    rules: list[Line] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    bands: list[Band] = field(default_factory=list)
    swatches: list[Swatch] = field(default_factory=list)
    last: Holdings | None = None

    def picture(self) -> SchedulePicture:
        title = f"{self.plan.scheme} among {count(self.shown.size, 'rank')}"
        grid = Grid.of(self.shown.size, self.shown.parts)
        id = f"zenc-{crc32(title.encode('utf-8', 'replace')):08x}"
        painter = Painter(grid, id, self.shown.limit)
        width = max(grid.right + MARGIN, LEAST_WIDTH)
        self._heading(width)
        top = self._ranks(grid)
        for step in self.shown.steps:
            self._step(grid, painter, step)
        if not self.shown.steps:
            self._write(MARGIN + LABELS, 0, "nothing to send: there is one rank", "quiet")
        lifelines = tuple(Line(grid.middle_of(r), top, grid.middle_of(r), self.y) for r in range(grid.size))
        self.y += 14
        self._legend(grid, painter)
        return SchedulePicture(
            round(width),
            round(self.y + MARGIN),
            id,
            title,
            self._description(),
            tuple(self.texts),
            lifelines if self.shown.steps else (),
            tuple(self.rules),
            tuple(painter.gradients.values()),
            tuple(self.rows),
            tuple(self.bands),
            tuple(self.swatches),
        )

    def _write(self, x: float, down: float, words: str, style: str, anchor: str = "start") -> None:
        self.y += down
        self.texts.append(Text(x, self.y, words, style, anchor))

    def _heading(self, width: float) -> None:
        room = width - 2 * MARGIN
        self._write(MARGIN, 14, cut(self.plan.scheme, int(room / 12)), "title")
        for line in wrapped(self.plan.doc, 12.5, room):
            self._write(MARGIN, 20, line, "doc")
        self._write(MARGIN, 20, cut(self._facts(), int(room / 6.2)), "quiet")
        self.y += 26

    def _facts(self) -> str:
        shown = self.shown
        phases = ", ".join(f"{phase} {count(number, 'step')}" for phase, number in shown.rounds)
        facts = [count(shown.size, "rank"), count(shown.parts, "part"), phases, count(shown.moves, "move")]
        if len(shown.steps) < sum(number for _, number in shown.rounds):
            facts[-1] += f" in the {count(len(shown.steps), 'step')} shown"
        return " \N{MIDDLE DOT} ".join(facts)

    def _description(self) -> str:
        steps = "; ".join(f"{s.phase} step {s.number}: {count(len(s.moves), 'move')}" for s in self.shown.steps[:40])
        return f"{self.plan.doc} {self._facts()}. Ranks are columns, time runs down. {steps}".strip()

    def _groups(self, grid: Grid) -> None:
        """A line over the ranks of every group of the inner tiers, the outer ones first."""
        sizes = accumulate((tier.size or 1 for tier in self.plan.tiers[:-1]), mul)
        for tier, size in reversed([*zip(self.plan.tiers, sizes, strict=False)]):
            for first in range(0, grid.size - size + 1, size):
                left, right = grid.left_of(first), grid.left_of(first + size - 1) + grid.node_width
                self.texts.append(
                    Text((left + right) / 2, self.y - 4, f"{tier.name} {first // size}", "quiet", "middle")
                )
                self.rules.append(Line(left, self.y, right, self.y))
            self.y += 20

    def _ranks(self, grid: Grid) -> float:
        self._groups(grid)
        for rank in range(grid.size):
            name = f"rank {rank}" if grid.column > 70 or grid.size < 10 else str(rank)
            self.texts.append(Text(grid.middle_of(rank), self.y, name, "rank", "middle"))
        self.y += 9
        return self.y

    def _step(self, grid: Grid, painter: Painter, step: DrawnStep) -> None:
        if not self.bands or self.bands[-1].phase != step.phase or step.before is not self.last:
            self._begin(grid, painter, step)
        top, height = self.y + 2, grid.band_height(step)
        bottom = top + height
        arrows, labels = painter.arrows(step, top, bottom), painter.labels(step, top, bottom)
        middle = (top + bottom) / 2
        moves = count(len(step.moves), "move")
        kind, _, tier = step.phase.partition(" of ")
        texts = (
            Text(MARGIN, middle, f"{kind} {step.number}", "step"),
            Text(MARGIN, middle + 15, moves, "quiet"),
            *([Text(MARGIN, middle + 29, cut(f"tier {tier}", 18), "quiet")] if tier else []),
        )
        title = f"{step.phase}, step {step.number}: {moves}"
        self.bands.append(Band(step.phase, step.number, title, texts, labels, arrows))
        self.y = bottom
        self._row(grid, painter, step, step.after, "after")
        self.last = step.after

    def _begin(self, grid: Grid, painter: Painter, step: DrawnStep) -> None:
        """A phase, or a part of one, begins: what is held then, if it is not what was shown last."""
        if step.before is not self.last:
            self.y += 12 if self.bands else 0
            self._row(grid, painter, step, step.before, "before")
        else:
            self.rules.append(Line(MARGIN, self.y - NODE_HEIGHT / 2, MARGIN + LABELS - 26, self.y - NODE_HEIGHT / 2))

    def _row(self, grid: Grid, painter: Painter, step: DrawnStep, have: Holdings, when: str) -> None:
        cut = have.shape[1] > 1
        held = have.mean(axis=2) if cut else have[:, 0, :].astype(float)
        whole: Holdings = np.asarray(have.all(axis=2))
        nodes = tuple(
            Node(grid.left_of(rank), self.y, grid.node_width, NODE_HEIGHT, _told(step, have[rank], rank, when))
            for rank in range(grid.size)
        )
        bars: list[Bars] = []
        for index in range(grid.bars):
            complete = whole[:, index] if cut else whole[:, 0]
            for wanted in (False, True):
                path = "".join(
                    self._bar(grid, rank, index, held[rank, index])
                    for rank in np.flatnonzero((complete == wanted) & (held[:, index] > 0)).tolist()
                )
                if path:
                    bars.append(Bars(path, painter.colours[index], wanted))
        self.rows.append(Row(nodes, tuple(bars)))
        self.y += NODE_HEIGHT

    def _bar(self, grid: Grid, rank: int, index: int, share: float) -> str:
        width, height = max(1.6, grid.pitch - 1.6), (NODE_HEIGHT - 2 * PAD) * share
        x, bottom = grid.bar(rank, index) - width / 2, self.y + NODE_HEIGHT - PAD
        return f"M{x:.1f} {bottom:.1f}v{-height:.1f}h{width:.1f}v{height:.1f}z"

    def _legend(self, grid: Grid, painter: Painter) -> None:
        many = grid.parts > 1
        what = "parts" if many else "ranks"
        bars = (
            "A bar is a part, as high as the share of the ranks in its sum; strong where it is complete."
            if many
            else "A bar is a rank whose contribution is in the sum; strong where all are."
        )
        if not many and not self.shown.topology:
            bars += " Arrows: colour of the sender."
        pitch = min(20.0, 320.0 / grid.bars)
        x = MARGIN + 46
        self._write(MARGIN, 22, what, "quiet")
        for index, colour in enumerate(painter.colours):
            self.swatches.append(Swatch(x + pitch * index, self.y - 10, pitch - 1.5, colour))
        last = x + pitch * grid.bars + 8
        self.texts.append(Text(last, self.y, f"0 to {grid.bars - 1}" if grid.bars > 1 else "0", "quiet"))
        room = max(grid.right, LEAST_WIDTH) - 2 * MARGIN
        if many and any(step.announces for step in self.shown.steps):
            bars += f" In the announce, a rank whose index set is there; arrows there {_SENDER}."
        for line in wrapped(bars, 11, room):
            self._write(MARGIN, 18, line, "quiet")
        if self.shown.topology:
            self._scale(room)

    def _scale(self, room: float) -> None:
        """The legend of the colours of arrows that show loads."""
        colours = ramp()
        x, y = MARGIN + 46, self.y + 24
        self._write(MARGIN, 24, "load", "quiet")
        self.swatches += [Swatch(x + 34.0 * i, y - 10, 32.5, colour) for i, colour in enumerate(colours)]
        self.texts.append(Text(x + 34.0 * len(colours) + 8, y, f"up to {seconds_text(self.shown.limit)}", "quiet"))
        words = (
            f"Arrows: how long the busiest link of {self.shown.topology} on the way is busy in the step; each colour "
            f"stands for loads {STEP} times those of the one before it."
        )
        for line in wrapped(words, 11, room):
            self._write(MARGIN, 18, line, "quiet")


def _told(step: DrawnStep, have: Holdings, rank: int, when: str) -> str:
    (parts, size), at = have.shape, f"rank {rank} {when} {step.phase} step {step.number}"
    if parts == 1:
        what = "index sets" if step.announces else "contributions"
        return f"{at}: {what} of {int(have.sum())} of {count(size, 'rank')}"
    return f"{at}: {int(have.all(axis=1).sum())} of {parts} parts complete"
