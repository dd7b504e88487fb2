"""Traffic matrices of a schedule, a phase each: the drawing for more ranks than arrows can be followed among.

    Flows = Shown Flow*
    Flow  = phase steps shares[src, dst] first[src, dst] seconds[src, dst]?

The plan is proved along the way, so what is drawn is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from zenc.analysis.expected_bytes import ExpectedBytes
from zenc.draw.shown import Heat, Shown, StepRange, ensure_ranks, heat_of
from zenc.plan.ir import Phase, Plan
from zenc.plan.unroll import Round, expand
from zenc.topology.model import Topology
from zenc.verify.proof import prove

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

MOST_RANKS = 256


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """One phase. All arrays are [size, size], from the rank of the row to that of the column.

    ``shares`` are of the tensor, or of an index set in an announce; ``first`` is the step in which a rank first sends
    to the other, from 1, and 0 where it never does; ``seconds`` that the busiest link on the way is busy in the
    worst step.
    """

    phase: str
    steps: int
    moves: int
    shares: Floats
    first: Ints
    seconds: Floats | None

    def pairs(self) -> Iterator[tuple[int, int]]:
        """The pairs (sender, receiver) of the phase."""
        src, dst = np.nonzero(self.first)
        yield from zip(src.tolist(), dst.tolist(), strict=True)


@dataclass(frozen=True, slots=True, eq=False)
class Flows(Shown):
    """The matrices that are drawn, a phase each."""

    flows: tuple[Flow, ...]

    @property
    def moves(self) -> int:
        """The number of moves of all phases."""
        return sum(flow.moves for flow in self.flows)

    @property
    def drawn(self) -> int:
        """The number of steps that are shown."""
        return sum(flow.steps for flow in self.flows)

    def to_json(self) -> dict[str, object]:
        """The pairs of ranks as JSON data: shares of the tensor, the first step, seconds of the busiest link."""
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
    """The chosen steps of ``plan`` among ``size`` ranks; with ``expected``, the loads of the links of ``topology``.

    Raises DrawingError where there are too many ranks, or no such steps, VerificationError as ``verify`` does, and
    TopologyError where a move has no route.
    """
    choice = choice or StepRange()
    ensure_ranks(size, MOST_RANKS)
    rounds = expand(plan, size)
    heat = heat_of(rounds, topology, expected)
    prove(plan, rounds, heat.observe if heat else None)
    chosen = [
        (phase, [(i, r) for i, r in enumerate(played, 1) if choice.takes(phase, i)]) for phase, played in rounds.phases
    ]
    flows = tuple(_flow(phase, played, plan.parts_in(phase, size), size, heat) for phase, played in chosen if played)
    drawn = Flows(rounds, heat, flows)
    drawn.ensure_any(choice)
    return drawn


def _flow(phase: Phase, played: Sequence[tuple[int, Round]], parts: int, size: int, heat: Heat | None) -> Flow:
    shares, first = np.zeros((size, size)), np.zeros((size, size), np.int64)
    seconds = np.zeros((size, size)) if heat else None
    for number, moves in played:
        np.add.at(shares, (moves.src, moves.dst), (moves.last - moves.first + 1) / parts)
        new = first[moves.src, moves.dst] == 0
        first[moves.src[new], moves.dst[new]] = number
        for src, dst in zip(moves.src.tolist(), moves.dst.tolist(), strict=True) if heat else ():
            assert heat is not None and seconds is not None
            seconds[src, dst] = max(seconds[src, dst], heat.of[phase.name, number, src, dst].seconds)
    return Flow(phase.name, len(played), sum(len(moves) for _, moves in played), shares, first, seconds)
