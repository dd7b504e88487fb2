"""The drawing of a scheme among many ranks: a matrix for each phase of senders and receivers, times and sizes.

    Flows = Shown Flow*
    Flow  = phase steps shares[src, dst] first[src, dst] seconds[src, dst]?

The plan is proved along the way, so the drawing is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from zenc.analysis.compression_text import described
from zenc.analysis.expected_bytes import ExpectedBytes
from zenc.common.wording import count, runs_text, seconds_text, share_text
from zenc.draw.colour import RAMP, ramp
from zenc.draw.scene import Mark, Scene, group, line, path, rectangle, text
from zenc.draw.sheet import MARGIN, Sheet
from zenc.draw.shown import Heat, Shown, StepRange, ensure_ranks, heat_class, heat_of
from zenc.draw.steps import LossesOfSteps, losses_kept
from zenc.plan.ir import Phase, Plan
from zenc.plan.unroll import Round, expand
from zenc.topology.model import Topology
from zenc.verify.proof import prove

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

MOST_RANKS = 256


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """The flow of one phase; all arrays are [size, size], from the rank of the row to that of the column.

    ``shares`` are of the tensor, or of an index set in an announce; ``first`` is the step in which a rank first sends
    to the other, from 1, and 0 where it never does; ``seconds`` are those that the busiest link on the way is busy in
    the worst step. ``kept`` [size] is the number of parts whose losses in the phase a rank keeps.
    """

    phase: str
    steps: int
    moves: int
    shares: Floats
    first: Ints
    seconds: Floats | None
    kept: Ints

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Return the pairs (sender, receiver) of the phase."""
        src, dst = np.nonzero(self.first)
        yield from zip(src.tolist(), dst.tolist(), strict=True)


@dataclass(frozen=True, slots=True, eq=False)
class Flows(Shown):
    """The matrices of a drawing, a phase each."""

    flows: tuple[Flow, ...]

    @property
    def moves(self) -> int:
        """The number of moves of all phases."""
        return sum(flow.moves for flow in self.flows)

    @property
    def drawn(self) -> int:
        """The number of steps shown."""
        return sum(flow.steps for flow in self.flows)

    def to_json(self) -> dict[str, object]:
        """Return the pairs of ranks as JSON data: shares of the tensor, the first step, seconds of the busiest link."""
        phases = [
            {"phase": flow.phase, "steps": flow.steps, "pairs": [_pair(flow, *pair) for pair in flow.pairs()]}
            for flow in self.flows
        ]
        return {**self.head_json(), "phases": phases}


def _pair(flow: Flow, src: int, dst: int) -> dict[str, object]:
    found: dict[str, object] = {"src": src, "dst": dst, "share": float(flow.shares[src, dst])}
    found["first_step"] = int(flow.first[src, dst])
    return found if flow.seconds is None else {**found, "load": float(flow.seconds[src, dst])}


def flows_of(
    plan: Plan,
    size: int,
    choice: StepRange | None = None,
    topology: Topology | None = None,
    expected: ExpectedBytes | None = None,
) -> Flows:
    """Return the chosen steps of ``plan`` among ``size`` ranks; with ``expected``, the loads of links of ``topology``.

    Raises DrawingError for too many ranks, or missing steps, VerificationError as ``verify`` does, and
    TopologyError where a move has no route.
    """
    choice = choice or StepRange()
    ensure_ranks(size, MOST_RANKS)
    rounds = expand(plan, size)
    heat = heat_of(rounds, topology, expected)
    losses = losses_kept(plan, rounds, prove(plan, rounds, heat.observe if heat else None))
    chosen = [
        (phase, [(i, r) for i, r in enumerate(played, 1) if choice.takes(phase, i)]) for phase, played in rounds.phases
    ]
    flows = tuple(
        _flow(phase, played, plan.parts_in(phase, size), size, heat, losses) for phase, played in chosen if played
    )
    drawn = Flows(rounds, heat, flows)
    drawn.ensure_any(choice)
    return drawn


def _flow(
    phase: Phase, played: Sequence[tuple[int, Round]], parts: int, size: int, heat: Heat | None, losses: LossesOfSteps
) -> Flow:
    marks = {(each.rank, each.part) for number, _ in played for each in losses.get((phase.name, number), ())}
    kept = np.bincount(np.array([rank for rank, _ in marks], np.int64), minlength=size)
    shares, first = np.zeros((size, size)), np.zeros((size, size), np.int64)
    seconds = np.zeros((size, size)) if heat else None
    for number, moves in played:
        np.add.at(shares, (moves.src, moves.dst), (moves.last - moves.first + 1) / parts)
        new = first[moves.src, moves.dst] == 0
        first[moves.src[new], moves.dst[new]] = number
        for src, dst in zip(moves.src.tolist(), moves.dst.tolist(), strict=True) if heat else ():
            assert heat is not None and seconds is not None
            seconds[src, dst] = max(seconds[src, dst], heat.of[phase.name, number, src, dst].seconds)
    return Flow(phase.name, len(played), sum(len(moves) for _, moves in played), shares, first, seconds, kept)


AXIS = 34.0
"""The room left of a matrix and above it, for the numbers of ranks."""
SIDE = 430.0
"""The greatest side of a matrix."""
LEAST_CELL, MOST_CELL = 2.5, 14.0
LEAST_SHARE = 0.35
"""The side of the smallest mark, as a share of that of a cell."""


def draw_matrix(plan: Plan, flows: Flows) -> Scene:
    """Return the drawing of ``flows``, which are those of ``plan``."""
    return _MatrixSheet(plan.scheme, described(plan), flows.title(plan), plan, flows).picture()


@dataclass(slots=True)
class _MatrixSheet(Sheet):
    plan: Plan
    shown: Flows
    panels: list[Mark] = field(default_factory=list)

    @property
    def cell(self) -> float:
        return max(LEAST_CELL, min(MOST_CELL, SIDE / self.shown.size))

    @property
    def side(self) -> float:
        return self.cell * self.shown.size

    def picture(self) -> Scene:
        columns = min(2, max(1, len(self.shown.flows)))
        pitch = AXIS + self.side + MARGIN
        width = max(MARGIN + columns * pitch, 420.0)
        self.heading(self.shown.facts, width)
        self.y += 12
        top = self.y
        for place, flow in enumerate(self.shown.flows):
            row, column = divmod(place, columns)
            self._panel(flow, MARGIN + column * pitch + AXIS, top + row * (self.side + 2 * AXIS + 18) + AXIS + 18)
        rows = -(-len(self.shown.flows) // columns)
        self.y = top + rows * (self.side + 2 * AXIS + 18)
        self._legend(width)
        each = "; ".join(f"{flow.phase}: {sum(1 for _ in flow.pairs())} pairs" for flow in self.shown.flows)
        description = f"{self.doc} {self.shown.facts}. Rows send, columns receive. {each}".strip()
        return self.scene(round(width), round(self.y + MARGIN), description, self.panels)

    def _panel(self, flow: Flow, x: float, y: float) -> None:
        size, cell = self.shown.size, self.cell
        steps = count(flow.steps, "step")
        self.texts.append(text(x, y - AXIS, f"{flow.phase}: {steps}, {count(flow.moves, 'move')}", "step"))
        self.texts.append(text(x + self.side, y - 18, "to rank", "quiet", "end"))
        for rank in self._numbered():
            middle = cell * (rank + 0.5)
            self.texts.append(text(x + middle, y - 5, str(rank), "quiet", "middle"))
            self.texts.append(text(x - 5, y + middle + 4, str(rank), "quiet", "end"))
        painted = [rectangle(x, y, self.side, self.side, "node")]
        for at in (cell * edge for edge in self._edges()):
            painted += line(x + at, y, x + at, y + self.side), line(x, y + at, x + self.side, y + at)
        painted += (self._row(flow, rank, x, y + cell * rank) for rank in range(size))
        self.panels.append(group("panel", painted, phase=flow.phase))

    def _numbered(self) -> Iterator[int]:
        every = next(
            step for step in (1, 2, 4, 8, 16, 32, 64, 128) if step * self.cell >= (30 if self.shown.size > 99 else 22)
        )
        yield from range(0, self.shown.size, every)

    def _edges(self) -> list[int]:
        sizes = list(accumulate((tier.size or 1 for tier in self.plan.tiers[:-1]), mul))
        return list(range(sizes[0], self.shown.size, sizes[0])) if sizes and sizes[0] > 1 else []

    def _row(self, flow: Flow, src: int, x: float, y: float) -> Mark:
        targets = np.flatnonzero(flow.first[src]).tolist()
        colours: dict[str, str] = {}
        greatest = float(flow.shares.max())
        for dst in targets:
            colour = self._colour(flow, src, dst)
            scale = max(LEAST_SHARE, float(flow.shares[src, dst] / greatest) ** 0.5)
            mark = (self.cell - 0.8) * scale
            left, top = x + self.cell * (dst + 0.5) - mark / 2, y + (self.cell - mark) / 2
            square = f"M{left:.1f} {top:.1f}h{mark:.1f}v{mark:.1f}h{-mark:.1f}z"
            colours[colour] = colours.get(colour, "") + square
        cells = (path(squares, fill=colour) for colour, squares in sorted(colours.items()))
        hit = rectangle(x, y, self.side, self.cell, "hit")
        return group("from", (hit, *cells), _told(flow, src, targets), src=src)

    def _colour(self, flow: Flow, src: int, dst: int) -> str:
        if flow.seconds is not None:
            return ramp()[heat_class(float(flow.seconds[src, dst]), self.shown.limit)]
        return ramp()[step_class(int(flow.first[src, dst]), flow.steps)]

    def _legend(self, width: float) -> None:
        meaning = (
            "A row sends, a column receives; the larger a mark, the greater the share of the tensor that is sent. "
        )
        if self.shown.topology:
            most, meaning = f"up to {seconds_text(self.shown.limit)}", f"{meaning}Its colour: {self.shown.scale}"
            self.scale(10, "load", most, meaning, width)
        else:
            meaning += "Its colour is the step in which the one first sends to the other."
            self.scale(10, "step", "from the first step to the last of the phase", meaning, width)


def step_class(number: int, steps: int) -> int:
    """Return the place in the ramp of step ``number``, from 1, of ``steps``."""
    return (number - 1) * (len(RAMP) - 1) // max(1, steps - 1)


def _told(flow: Flow, src: int, targets: list[int]) -> str:
    kept = f"; it keeps what {count(int(flow.kept[src]), 'part')} lost" if flow.kept[src] else ""
    if not targets:
        return f"{flow.phase}: rank {src} sends nothing{kept}"
    total = share_text(float(flow.shares[src].sum()))
    return f"{flow.phase}: rank {src} sends {total} of the tensor, in all, to {runs_text(targets)}{kept}"
