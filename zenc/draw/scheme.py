"""The drawing of a scheme: its sends, step by step, and the pieces of all ranks in between."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

import numpy as np

from zenc.analysis.compression_text import described, sentences
from zenc.analysis.expected_bytes import expected_bytes
from zenc.common.wording import count, seconds_text
from zenc.draw.arrows import LABELS, NODE_HEIGHT, PAD, Grid, Painter
from zenc.draw.matrix import Flows, draw_matrix, flows_of
from zenc.draw.scene import Mark, Scene, group, line, path, rectangle, text
from zenc.draw.sheet import MARGIN, Sheet, cut
from zenc.draw.shown import StepRange
from zenc.draw.steps import MERGED, MOST_RANKS, DrawnStep, Holdings, LossMark, Steps, steps_of
from zenc.gradients.spec import GradientSpec
from zenc.plan.ir import Plan
from zenc.scheme.compression_words import selection_text, words_of
from zenc.topology.model import Topology

LEAST_WIDTH = 560.0
_SENDER = "have the colour of the sender"


def draw(plan: Plan, steps: Steps) -> Scene:
    """Return the drawing of ``steps``, which are those of ``plan``."""
    return _SchemeSheet(plan.scheme, plan.doc, steps.title(plan), plan, steps).picture()


@dataclass(slots=True)
class _SchemeSheet(Sheet):
    plan: Plan
    shown: Steps
    rules: list[Mark] = field(default_factory=list)
    rows: list[Mark] = field(default_factory=list)
    bands: list[Mark] = field(default_factory=list)
    last: Holdings | None = None

    def picture(self) -> Scene:
        grid = Grid.of(self.shown.size, self.shown.parts)
        painter = Painter(grid, self.id, self.shown.limit)
        width = max(grid.right + MARGIN, LEAST_WIDTH)
        self.heading(self.shown.facts, width)
        self.y += 28
        top = self._ranks(grid)
        for step in self.shown.steps:
            self._step(grid, painter, step)
        if not self.shown.steps:
            self.write(0, "nothing to send: there is one rank", "quiet", MARGIN + LABELS)
        middles = map(grid.middle_of, range(grid.size) if self.shown.steps else ())
        lifelines = [line(x, top, x, self.y, "lifeline") for x in middles]
        self.y += 14
        self._legend(grid, painter, width)
        steps = "; ".join(f"{s.phase} step {s.number}: {count(len(s.moves), 'move')}" for s in self.shown.steps[:40])
        told = f"{described(self.plan)} {self.shown.facts}. Ranks are columns, time runs down. {steps}".strip()
        colours = Mark("defs", {}, list(painter.gradients.values()))
        painted = (colours, *lifelines, *self.rules, *self.rows, *self.bands)
        return self.scene(round(width), round(self.y + MARGIN), told, painted)

    def _groups(self, grid: Grid) -> None:
        """Draw a line over the ranks of every group of the inner tiers, the outer ones first."""
        sizes = accumulate((tier.size or 1 for tier in self.plan.tiers[:-1]), mul)
        for tier, size in reversed([*zip(self.plan.tiers, sizes, strict=False)]):
            for first in range(0, grid.size - size + 1, size):
                left, right = grid.left_of(first), grid.left_of(first + size - 1) + grid.node_width
                self.texts.append(
                    text((left + right) / 2, self.y - 4, f"{tier.name} {first // size}", "quiet", "middle")
                )
                self.rules.append(line(left, self.y, right, self.y))
            self.y += 20

    def _ranks(self, grid: Grid) -> float:
        self._groups(grid)
        for rank in range(grid.size):
            name = f"rank {rank}" if grid.column > 70 or grid.size < 10 else str(rank)
            self.texts.append(text(grid.middle_of(rank), self.y, name, "rank", "middle"))
        self.y += 9
        return self.y

    def _step(self, grid: Grid, painter: Painter, step: DrawnStep) -> None:
        if not self.bands or step.number == 1 or step.before is not self.last:
            self._begin(grid, painter, step)
        top, height = self.y + 2, grid.band_height(step)
        bottom = top + height
        arrows, labels = painter.arrows(step, top, bottom), painter.labels(step, top, bottom)
        middle = (top + bottom) / 2
        moves = count(len(step.moves), "move")
        kind, _, tier = step.phase.partition(" of ")
        merge = step.plan_phase.merge
        facts = [moves, *([f"tier {tier}"] if tier else []), *_code(step)]
        facts += [f"merge {selection_text(merge)}"] if merge else []
        texts = [text(MARGIN, middle + 15 + 14 * row, cut(told, 18), "quiet") for row, told in enumerate(facts)]
        head = text(MARGIN, middle, f"{kind} {step.number}", "step")
        title = f"{step.phase}, step {step.number}: {moves}"
        keepers = [self._keeper(grid, painter, step, mark) for mark in step.kept if mark.what != MERGED]
        self.y = bottom
        self._row(grid, painter, step, step.after, "after")
        keepers += [self._keeper(grid, painter, step, mark) for mark in step.kept if mark.what == MERGED]
        painted = (head, *texts, *arrows, *keepers, *labels)
        self.bands.append(group("band", painted, title, phase=step.phase, step=step.number))
        self.last = step.after

    def _keeper(self, grid: Grid, painter: Painter, step: DrawnStep, mark: LossMark) -> Mark:
        """Return the mark below the bar of the part, or below the box itself for a tensor in one part."""
        x, half = (
            (grid.middle_of(mark.rank) if step.whole else grid.bar(mark.rank, mark.part)),
            min(4.5, grid.pitch / 2),
        )
        colour = painter.colours[mark.rank if step.whole else mark.part]
        what = "the tensor" if step.whole else f"part {mark.part}"
        title = f"rank {mark.rank} keeps what {what} loses where it is {mark.what}"
        diamond = f"M{x - half:.1f} {self.y + 4:.1f}l{half:.1f} -5l{half:.1f} 5l{-half:.1f} 5z"
        return path(diamond, "keeper", colour, title)

    def _begin(self, grid: Grid, painter: Painter, step: DrawnStep) -> None:
        """Begin a phase, or a part of one: its selection, and the pieces held, if they differ from those shown last."""
        if step.plan_phase.select and step.number == 1:
            below = 12.0 * bool(self.bands) + NODE_HEIGHT / 2 + 4 if step.before is not self.last else 1.0
            of = cut(f"select {selection_text(step.plan_phase.select)}", 20)
            self.texts.append(text(MARGIN, self.y + below, of, "quiet"))
        if step.before is not self.last:
            self.y += 12 if self.bands else 0
            self._row(grid, painter, step, step.before, "before")
        else:
            self.rules.append(line(MARGIN, self.y - NODE_HEIGHT / 2, MARGIN + LABELS - 26, self.y - NODE_HEIGHT / 2))

    def _row(self, grid: Grid, painter: Painter, step: DrawnStep, have: Holdings, when: str) -> None:
        cut = have.shape[1] > 1
        held = have.mean(axis=2) if cut else have[:, 0, :].astype(float)
        whole: Holdings = np.asarray(have.all(axis=2))
        painted: list[Mark] = []
        for rank in range(grid.size):
            box, told = (grid.left_of(rank), self.y, grid.node_width, NODE_HEIGHT), _told(step, have[rank], rank, when)
            painted.append(rectangle(*box, "node", rx=5, title=told))
        for index in range(held.shape[1]):
            complete = whole[:, index] if cut else whole[:, 0]
            for wanted in (False, True):
                ranks = np.flatnonzero((complete == wanted) & (held[:, index] > 0)).tolist()
                if bars := "".join(self._bar(grid, rank, index, held[rank, index]) for rank in ranks):
                    style, colour = "complete" if wanted else "partial", painter.colours[index]
                    painted.append(path(bars, style, colour, pointer_events="none"))
        self.rows.append(group("row", painted))
        self.y += NODE_HEIGHT

    def _bar(self, grid: Grid, rank: int, index: int, share: float) -> str:
        width, height = max(1.6, grid.pitch - 1.6), (NODE_HEIGHT - 2 * PAD) * share
        x, bottom = grid.bar(rank, index) - width / 2, self.y + NODE_HEIGHT - PAD
        return f"M{x:.1f} {bottom:.1f}v{-height:.1f}h{width:.1f}v{height:.1f}z"

    def _legend(self, grid: Grid, painter: Painter, width: float) -> None:
        many = grid.parts > 1
        bars = (
            "A bar is a part, as high as the share of the ranks in its sum; strong where it is complete."
            if many
            else "A bar is a rank whose contribution is in the sum; strong where all are."
        )
        if not many and not self.shown.topology:
            bars += " Arrows: colour of the sender."
        if any(step.kept for step in self.shown.steps):
            bars += " A diamond: the rank keeps what that part loses there."
        if many and any(step.announces for step in self.shown.steps):
            bars += f" In the announce, a rank whose index set is there; arrows there {_SENDER}."
        pitch, x = min(20.0, 320.0 / grid.bars), MARGIN + 46
        self.write(22, "parts" if many else "ranks", "quiet")
        for index, colour in enumerate(painter.colours):
            self.swatch(x + pitch * index, pitch - 1.5, colour)
        last = x + pitch * grid.bars + 8
        self.texts.append(text(last, self.y, f"0 to {grid.bars - 1}" if grid.bars > 1 else "0", "quiet"))
        self.paragraph(18, bars, "quiet", 11, width)
        for sentence in sentences(self.plan):
            self.paragraph(16, f"{sentence[0].upper()}{sentence[1:]}.", "quiet", 11, width)
        if self.shown.topology:
            most = f"up to {seconds_text(self.shown.limit)}"
            self.scale(24, "load", most, f"Arrows: {self.shown.scale}", width)


def _code(step: DrawnStep) -> list[str]:
    code = step.plan_phase.code
    return [f"as {words_of(code)}"] if code else []


def _told(step: DrawnStep, have: Holdings, rank: int, when: str) -> str:
    (parts, size), at = have.shape, f"rank {rank} {when} {step.phase} step {step.number}"
    if parts == 1:
        what = "index sets" if step.announces else "contributions"
        return f"{at}: {what} of {int(have.sum())} of {count(size, 'rank')}"
    what = "index sets of " if step.announces else ""
    return f"{at}: {what}{int(have.all(axis=1).sum())} of {parts} parts complete"


@dataclass(frozen=True, slots=True)
class Drawing:
    """A scheme's picture; ``steps`` are its contents: each move, or among many ranks the senders and receivers."""

    plan: Plan
    steps: Steps | Flows
    picture: Scene

    def svg(self) -> str:
        """Return the text of an SVG file, which needs no other file, font or script."""
        return self.picture.svg()

    def words(self) -> str:
        """Return the subject of the drawing, in a line."""
        return f"{self.picture.title}, {count(self.steps.moves, 'move')} in {count(self.steps.drawn, 'step')}"

    def to_json(self) -> dict[str, object]:
        """Return the moves of the drawing, as JSON data."""
        return {"scheme": self.plan.scheme, "digest": self.plan.digest, **self.steps.to_json()}


def picture_of(plan: Plan, ranks: int, chosen: StepRange, topology: Topology | None, gradient: GradientSpec) -> Drawing:
    """Draw the ``chosen`` steps of ``plan`` among ``ranks``; with a ``topology``, its loads by ``gradient``."""
    expected = expected_bytes(plan, ranks, gradient, topology.has_gpus) if topology else None
    if ranks > MOST_RANKS:
        flows = flows_of(plan, ranks, chosen, topology, expected)
        return Drawing(plan, flows, draw_matrix(plan, flows))
    shown = steps_of(plan, ranks, chosen, topology, expected)
    return Drawing(plan, shown, draw(plan, shown))
