"""The drawing of a scheme among many ranks: a matrix for each phase, who sends to whom, when and how much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul
from zlib import crc32

import numpy as np

from zenc.draw.arrows import STEP, heat_class
from zenc.draw.colour import RAMP, ramp
from zenc.draw.flows import Flow, Flows
from zenc.draw.picture import Cells, FlowRow, Line, MatrixPicture, Panel, Swatch, Text
from zenc.draw.text_metrics import cut, wrapped
from zenc.format_units import runs_text, seconds_text, share_text
from zenc.plan.ir import Plan
from zenc.plurals import count

MARGIN = 28.0
AXIS = 34.0
"""Left of a matrix and above it, for the numbers of ranks."""
SIDE = 430.0
"""Of a matrix, at the most."""
LEAST_CELL, MOST_CELL = 2.5, 14.0
LEAST_SHARE = 0.35
"""The side of the smallest mark, of that of a cell."""


def draw_matrix(plan: Plan, flows: Flows) -> MatrixPicture:
    """The drawing of ``flows``, which are those of ``plan``."""
    return _MatrixSheet(plan, flows).picture()


@dataclass(slots=True)
class _MatrixSheet:
    plan: Plan
    shown: Flows
    y: float = MARGIN
    texts: list[Text] = field(default_factory=list)
    panels: list[Panel] = field(default_factory=list)
    swatches: list[Swatch] = field(default_factory=list)

    @property
    def cell(self) -> float:
        return max(LEAST_CELL, min(MOST_CELL, SIDE / self.shown.size))

    @property
    def side(self) -> float:
        return self.cell * self.shown.size

    def picture(self) -> MatrixPicture:
        columns = min(2, max(1, len(self.shown.flows)))
        pitch = AXIS + self.side + MARGIN
        width = max(MARGIN + columns * pitch, 420.0)
        self._heading(width)
        top = self.y
        for place, flow in enumerate(self.shown.flows):
            row, column = divmod(place, columns)
            self._panel(flow, MARGIN + column * pitch + AXIS, top + row * (self.side + 2 * AXIS + 18) + AXIS + 18)
        rows = -(-len(self.shown.flows) // columns)
        self.y = top + rows * (self.side + 2 * AXIS + 18)
        self._legend(width)
        title = f"{self.plan.scheme} among {count(self.shown.size, 'rank')}"
        id = f"zenc-{crc32(title.encode('utf-8', 'replace')):08x}"
        drawn = tuple(self.texts), tuple(self.panels), tuple(self.swatches)
        return MatrixPicture(round(width), round(self.y + MARGIN), id, title, self._description(), *drawn)

    def _write(self, down: float, words: str, style: str) -> None:
        self.y += down
        self.texts.append(Text(MARGIN, self.y, words, style))

    def _heading(self, width: float) -> None:
        room = width - 2 * MARGIN
        self._write(14, cut(self.plan.scheme, int(room / 12)), "title")
        for line in wrapped(self.plan.doc, 12.5, room):
            self._write(20, line, "doc")
        for line in wrapped(self._facts(), 11, room):
            self._write(18, line, "quiet")
        self.y += 12

    def _facts(self) -> str:
        shown = self.shown
        phases = ", ".join(f"{phase} {count(number, 'step')}" for phase, number in shown.rounds)
        facts = [count(shown.size, "rank"), count(shown.parts, "part"), phases, count(shown.moves, "move")]
        if shown.drawn < sum(number for _, number in shown.rounds):
            facts[-1] += f" in the {count(shown.drawn, 'step')} shown"
        return " \N{MIDDLE DOT} ".join(facts)

    def _description(self) -> str:
        each = "; ".join(f"{flow.phase}: {sum(1 for _ in flow.pairs())} pairs" for flow in self.shown.flows)
        return f"{self.plan.doc} {self._facts()}. Rows send, columns receive. {each}".strip()

    def _panel(self, flow: Flow, x: float, y: float) -> None:
        size, cell = self.shown.size, self.cell
        steps = count(flow.steps, "step")
        self.texts.append(Text(x, y - AXIS, f"{flow.phase}: {steps}, {count(flow.moves, 'move')}", "step"))
        self.texts.append(Text(x + self.side, y - 18, "to rank", "quiet", "end"))
        for rank in self._numbered():
            middle = cell * (rank + 0.5)
            self.texts.append(Text(x + middle, y - 5, str(rank), "quiet", "middle"))
            self.texts.append(Text(x - 5, y + middle + 4, str(rank), "quiet", "end"))
        rows = tuple(self._row(flow, rank, x, y + cell * rank) for rank in range(size))
        lines = [
            Line(*ends)
            for at in (cell * edge for edge in self._edges())
            for ends in ((x + at, y, x + at, y + self.side), (x, y + at, x + self.side, y + at))
        ]
        self.panels.append(Panel(flow.phase, x, y, self.side, cell, rows, tuple(lines)))

    def _numbered(self) -> Iterator[int]:
        """The ranks whose numbers there is room for."""
        every = next(
            step for step in (1, 2, 4, 8, 16, 32, 64, 128) if step * self.cell >= (30 if self.shown.size > 99 else 22)
        )
        yield from range(0, self.shown.size, every)

    def _edges(self) -> list[int]:
        """The first ranks of the groups of the innermost tier."""
        sizes = list(accumulate((tier.size or 1 for tier in self.plan.tiers[:-1]), mul))
        return list(range(sizes[0], self.shown.size, sizes[0])) if sizes and sizes[0] > 1 else []

    def _row(self, flow: Flow, src: int, x: float, y: float) -> FlowRow:
        targets = np.flatnonzero(flow.first[src]).tolist()
        colours: dict[str, str] = {}
        greatest = float(flow.shares.max())
        for dst in targets:
            colour = self._colour(flow, src, dst)
            scale = max(LEAST_SHARE, float(flow.shares[src, dst] / greatest) ** 0.5)
            mark = (self.cell - 0.8) * scale
            left, top = x + self.cell * (dst + 0.5) - mark / 2, y + (self.cell - mark) / 2
            path = f"M{left:.1f} {top:.1f}h{mark:.1f}v{mark:.1f}h{-mark:.1f}z"
            colours[colour] = colours.get(colour, "") + path
        cells = tuple(Cells(path, colour) for colour, path in sorted(colours.items()))
        return FlowRow(src, y, cells, _told(flow, src, targets))

    def _colour(self, flow: Flow, src: int, dst: int) -> str:
        if flow.seconds is not None:
            return ramp()[heat_class(float(flow.seconds[src, dst]), self.shown.limit)]
        return ramp()[step_class(int(flow.first[src, dst]), flow.steps)]

    def _legend(self, width: float) -> None:
        loads = bool(self.shown.topology)
        self._write(10, "load" if loads else "step", "quiet")
        x = MARGIN + 40
        self.swatches += [Swatch(x + 34.0 * i, self.y - 10, 32.5, colour) for i, colour in enumerate(ramp())]
        told = f"up to {seconds_text(self.shown.limit)}" if loads else "from the first step to the last of the phase"
        self.texts.append(Text(x + 34.0 * len(RAMP) + 8, self.y, told, "quiet"))
        words = "A row sends, a column receives; the larger a mark, the greater the share of the tensor that is sent. "
        words += (
            f"Its colour: how long the busiest link of {self.shown.topology} on the way is busy in a step; each colour "
            f"stands for loads {STEP} times those of the one before it."
            if loads
            else "Its colour is the step in which the one first sends to the other."
        )
        for line in wrapped(words, 11, width - 2 * MARGIN):
            self._write(18, line, "quiet")


def step_class(number: int, steps: int) -> int:
    """The place in the ramp of step ``number``, from 1, of so many."""
    return (number - 1) * (len(RAMP) - 1) // max(1, steps - 1)


def _told(flow: Flow, src: int, targets: list[int]) -> str:
    if not targets:
        return f"{flow.phase}: rank {src} sends nothing"
    total = share_text(float(flow.shares[src].sum()))
    return f"{flow.phase}: rank {src} sends {total} of the tensor, in all, to {runs_text(targets)}"
