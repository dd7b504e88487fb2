"""Counting simulation of a proved plan: contributors and pieces of each message.

    Played         = CountedStep*
    CountedStep    = Phase number DeliveryCounts*               # steps in which nothing moves are left out
    DeliveryCounts = (src dst part pieces contributors owned)*    # arrays, one entry for every part of every move

Of a plan that is right no contribution arrives twice, so those of a piece are the sum of what was there and what came,
and numbers do where the proof (``zenc.verify.proof``) needs sets. So thousands of ranks are a matter of seconds: moves
come a statement at a time and are forgotten; what is kept is two numbers for every rank and part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zenc.plan.expressions import Ints
from zenc.plan.ir import Phase, PhaseKind, Plan
from zenc.plan.unroll import Round, joined, stream
from zenc.verify.provenance import Deliveries, by_part

Small = npt.NDArray[np.int32]

MOST_ROWS = 1 << 20
"""Parts of moves that are looked at together."""


@dataclass(frozen=True, slots=True, eq=False)
class DeliveryCounts:
    """``pieces`` of ``part`` from ``src`` to ``dst``, each with what ``contributors`` ranks contributed.

    ``owned``: whether the rank that owns the part is among them, which counts by holders alone.
    """

    src: Ints
    dst: Ints
    part: Ints
    pieces: Small
    contributors: Small
    owned: Small


@dataclass(frozen=True, slots=True, eq=False)
class CountedStep:
    """One step of ``phase``, which is the ``number``-th of it that moves anything; ``carried`` is used up once."""

    phase: Phase
    number: int
    carried: Iterator[DeliveryCounts]


def play(plan: Plan, size: int) -> Iterator[CountedStep]:
    """All steps of ``plan`` among ``size`` ranks, in their order; each is to be used up before the next one.

    ``plan`` counts as proved. Raises VerificationError as ``zenc.plan.unroll.expand`` does.
    """
    state, pushes = _State(size, plan.parts(size)), 0
    for phase, steps in stream(plan, size):
        of_phase = _State(size, 1) if phase.kind is PhaseKind.ANNOUNCE else state
        of_phase.begin(phase.keeps_apart, later=pushes > 0)
        pushes += phase.kind is PhaseKind.PUSH
        number = 0
        for step in steps:
            first = next(step, None)
            if first is None:
                continue
            number += 1
            complete = phase.kind is PhaseKind.PULL
            carried = _complete(first, step, size) if complete else of_phase.step(first, step)
            yield CountedStep(phase, number, carried)


class _State:
    """Of every rank and part, as [size * parts]: how many contributed to what is held, in how many pieces.

    ``begun`` is the former when a one-shot phase began. ``owners`` says where the contribution of the rank with the
    part's own number is among them.
    """

    def __init__(self, size: int, parts: int) -> None:
        self.size, self.parts = size, parts
        self.contributors: Small = np.ones(size * parts, dtype=np.int32)
        self.owners = np.zeros(size * parts, dtype=np.int8)
        ranks = np.arange(min(size, parts))
        self.owners[ranks * parts + ranks] = 1
        self.one_shot = False
        self.pieces = self.begun = self.contributors

    def begin(self, one_shot: bool, later: bool) -> None:
        """Open a phase, which is ``later`` than another push."""
        self.one_shot = one_shot
        if one_shot:
            self.begun = self.contributors.copy()
            self.pieces = np.ones_like(self.contributors) if later else self.contributors.copy()

    def step(self, first: Round, others: Iterator[Round]) -> Iterator[DeliveryCounts]:
        """Play one step of a push: all its moves see what was there before it."""
        arrived: list[tuple[Ints, Small, Small, npt.NDArray[np.int8]]] = []
        for rows in _rows(first, others):
            at = rows.src * self.parts + rows.part
            held, pieces, owned = self.contributors[at], np.ones(len(at), dtype=np.int32), self.owners[at]
            if self.one_shot:
                held, pieces, owned = self._pieces(at, rows.part, rows.origin, held, owned)
            arrived.append((rows.dst * self.parts + rows.part, held, pieces, owned))
            each = np.asarray(held // pieces, dtype=np.int32)
            yield DeliveryCounts(rows.src, rows.dst, rows.part, pieces, each, owned.astype(np.int32))
        for key, held, pieces, owned in arrived:
            np.add.at(self.contributors, key, held)
            np.add.at(self.owners, key, owned)
            if self.one_shot:
                np.add.at(self.pieces, key, pieces)

    def _pieces(
        self, at: Ints, part: Ints, origin: Ints, held: Small, owned: npt.NDArray[np.int8]
    ) -> tuple[Small, Small, npt.NDArray[np.int8]]:
        """Pieces that are kept apart: all that there are, or the one of ``origin``."""
        limited, pieces = origin >= 0, self.pieces[at]
        if not limited.any():
            return held, pieces, owned
        begun = self.begun[np.where(limited, origin, 0) * self.parts + part]
        mine = np.where(limited, origin == part, owned).astype(np.int8)
        return np.where(limited, begun, held), np.where(limited, np.int32(1), pieces), mine


def _complete(first: Round, others: Iterator[Round], size: int) -> Iterator[DeliveryCounts]:
    """A step of a pull: every part has the contributions of all."""
    for rows in _rows(first, others):
        one = np.ones(len(rows.src), dtype=np.int32)
        yield DeliveryCounts(rows.src, rows.dst, rows.part, one, one * np.int32(size), one)


def _rows(first: Round, others: Iterator[Round]) -> Iterator[Deliveries]:
    """What moves, part by part, about MOST_ROWS at a time."""
    waiting, rows = [first], int((first.last - first.first + 1).sum())
    for moves in others:
        if rows > MOST_ROWS:
            yield by_part(joined(waiting))
            waiting, rows = [], 0
        waiting.append(moves)
        rows += int((moves.last - moves.first + 1).sum())
    yield by_part(joined(waiting))
