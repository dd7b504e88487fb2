"""The schedule of one rank: which pieces it sends to and receives from whom, in every step.

    RankSchedule     = rank PhaseSteps+                 # one for each phase of the plan, in their order
    PhaseSteps       = Phase RankStep* needless
    RankStep         = number  sends: ScheduledMessage*  receives: ScheduledMessage*
    ScheduledMessage = peer Piece+                      # one message a peer and round
    Piece            = part origin?                     # origin: only what that rank contributed

``number`` is that of the round; a rank has no step for rounds without it.
All messages of a step are posted before any is waited for. Pieces are sorted by part, then origin, on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from zenc.plan.ir import Phase, PhaseKind
from zenc.plan.unroll import Round, Rounds


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """A part, or what rank ``origin`` contributed to it; -1 for all that its sender holds."""

    part: int
    origin: int = -1


@dataclass(frozen=True, slots=True)
class ScheduledMessage:
    """The message to or from rank ``peer`` in a step; pieces ascending."""

    peer: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class RankStep:
    """The messages of one round of one rank; ``number`` counts the rounds of all phases from 1."""

    number: int
    sends: tuple[ScheduledMessage, ...]
    receives: tuple[ScheduledMessage, ...]


@dataclass(frozen=True, slots=True)
class PhaseSteps:
    """The steps of one rank in one phase.

    ``needless`` are the parts of which it needs nothing that it holds when the phase ends: a pull brings them before
    they are moved again.
    """

    phase: Phase
    steps: tuple[RankStep, ...]
    needless: frozenset[int]


@dataclass(frozen=True, slots=True)
class RankSchedule:
    """The steps of ``rank``, phase by phase."""

    rank: int
    phases: tuple[PhaseSteps, ...]


def program(rounds: Rounds, rank: int) -> RankSchedule:
    """The steps of ``rank``; round numbers count from 1, and go on from phase to phase."""
    phases, first = list[tuple[Phase, tuple[RankStep, ...]]](), 1
    for phase, played in rounds.phases:
        phases.append((phase, tuple(_steps(played, rank, first))))
        first += len(played)
    found, needless = list[PhaseSteps](), frozenset[int]()
    for phase, steps in reversed(phases):
        found.append(PhaseSteps(phase, steps, needless))
        needless = _needless(phase, steps, needless)
    return RankSchedule(rank, tuple(reversed(found)))


def _needless(phase: Phase, steps: tuple[RankStep, ...], after: frozenset[int]) -> frozenset[int]:
    """What is not needed when ``phase`` begins: what it or a later pull brings, unless a push moves it before."""
    if phase.kind is PhaseKind.PULL:
        return after | {piece.part for step in steps for m in step.receives for piece in m.pieces}
    return after - {piece.part for step in steps for m in (*step.sends, *step.receives) for piece in m.pieces}


def _steps(rounds: Iterable[Round], rank: int, first_number: int) -> Iterator[RankStep]:
    for number, round_ in enumerate(rounds, start=first_number):
        sends = _messages(round_.take(round_.src == rank), "dst", rank)
        receives = _messages(round_.take(round_.dst == rank), "src", rank)
        if sends or receives:
            yield RankStep(number, sends, receives)


def _messages(moves: Round, peer_column: str, rank: int) -> tuple[ScheduledMessage, ...]:
    """The moves to (or from) each peer as one message; nearest peers above ``rank`` first, to stagger the sends."""
    pieces: dict[int, list[Piece]] = {}
    peers = getattr(moves, peer_column)
    for peer, first, last, origin in np.stack((peers, moves.first, moves.last, moves.origin), axis=1).tolist():
        pieces.setdefault(peer, []).extend(Piece(part, origin) for part in range(first, last + 1))
    nearest = sorted(pieces, key=lambda peer: (peer < rank, peer))
    return tuple(ScheduledMessage(peer, tuple(sorted(pieces[peer]))) for peer in nearest)
