"""The schedule of one rank: which pieces it sends to and receives from whom, in every step.

    RankSchedule = announce: Phase  (pushes: Phase*  pulls: Phase*)
    Phase        = RankStep*
    RankStep     = number  sends: Message*  receives: Message*   # of round ``number``; rounds without it are left out
    Message      = peer Piece+                                   # one message a peer and round
    Piece        = part origin?                                  # origin: only what that rank contributed

All messages of a step are posted before any is waited for. Pieces are sorted by part, then origin, on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from zenc.plan.unroll import Round, Rounds


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """A part, or what rank ``origin`` contributed to it; -1 for all that its sender holds."""

    part: int
    origin: int = -1


@dataclass(frozen=True, slots=True)
class Message:
    """All that goes to or comes from rank ``peer`` in a step; pieces ascending."""

    peer: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class RankStep:
    """The messages of one round of one rank; ``number`` counts the rounds of all phases from 1."""

    number: int
    sends: tuple[Message, ...]
    receives: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class RankSchedule:
    """The steps of ``rank`` by phase, and when its parts are complete or no longer needed.

    ``last[k][part]`` is the last step of push k that moves a part from or to this rank. ``needless[k]`` are the parts
    of which it needs nothing that it holds when phase k (pushes, then pulls) ends: a pull brings them before they
    are moved again.
    """

    rank: int
    pushes: tuple[tuple[RankStep, ...], ...]
    pulls: tuple[tuple[RankStep, ...], ...]
    last: tuple[Mapping[int, int], ...]
    needless: tuple[frozenset[int], ...]
    announce: tuple[RankStep, ...] = ()


def program(rounds: Rounds, rank: int) -> RankSchedule:
    """The steps of ``rank``; round numbers count from 1, and go on from phase to phase."""
    announce = tuple(_steps(rounds.announce, rank, 1))
    phases, first = [], 1 + len(rounds.announce)
    for phase in (*rounds.pushes, *rounds.pulls):
        phases.append(tuple(_steps(phase, rank, first)))
        first += len(phase)
    pushes, pulls = tuple(phases[: len(rounds.pushes)]), tuple(phases[len(rounds.pushes) :])
    last = tuple(
        {piece.part: step.number for step in push for m in (*step.sends, *step.receives) for piece in m.pieces}
        for push in pushes
    )
    return RankSchedule(rank, pushes, pulls, last, _needless(pushes, pulls), announce)


def _needless(
    pushes: tuple[tuple[RankStep, ...], ...], pulls: tuple[tuple[RankStep, ...], ...]
) -> tuple[frozenset[int], ...]:
    """By phase, from the last one back: what a later pull brings is not needed, unless a phase between moves it."""
    needless: frozenset[int] = frozenset()
    found = [needless]
    for pull in reversed(pulls):
        needless |= {piece.part for step in pull for m in step.receives for piece in m.pieces}
        found.append(needless)
    for push in reversed(pushes[1:]):
        needless -= {piece.part for step in push for m in (*step.sends, *step.receives) for piece in m.pieces}
        found.append(needless)
    return tuple(reversed(found))


def _steps(rounds: Iterable[Round], rank: int, first_number: int) -> Iterator[RankStep]:
    for number, round_ in enumerate(rounds, start=first_number):
        sends = _messages(round_.take(round_.src == rank), "dst", rank)
        receives = _messages(round_.take(round_.dst == rank), "src", rank)
        if sends or receives:
            yield RankStep(number, sends, receives)


def _messages(moves: Round, peer_column: str, rank: int) -> tuple[Message, ...]:
    """The moves to (or from) each peer as one message; nearest peers above ``rank`` first, to stagger the sends."""
    pieces: dict[int, list[Piece]] = {}
    peers = getattr(moves, peer_column)
    for peer, first, last, origin in np.stack((peers, moves.first, moves.last, moves.origin), axis=1).tolist():
        pieces.setdefault(peer, []).extend(Piece(part, origin) for part in range(first, last + 1))
    nearest = sorted(pieces, key=lambda peer: (peer < rank, peer))
    return tuple(Message(peer, tuple(sorted(pieces[peer]))) for peer in nearest)
