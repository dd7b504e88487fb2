"""What one rank does: its own view of the rounds of a plan.

    Program = push: Step*  pull: Step*
    Step    = number  sends: Message*  receives: Message*   # of round ``number``; rounds without it are left out
    Message = peer Piece+                                   # one message a peer and round
    Piece   = part origin?                                  # origin: only what that rank contributed

All messages of a step are posted before any is waited for. Pieces are sorted by part, then origin, on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from zenc.plan.rounds import Round, Rounds


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    part: int
    origin: int = -1


@dataclass(frozen=True, slots=True)
class Message:
    peer: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Step:
    number: int
    sends: tuple[Message, ...]
    receives: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """What ``rank`` does.

    ``last_push[part]`` is the last step of the push that moves a part from or to this rank; ``pulled`` are the parts
    that the pull brings it.
    """

    rank: int
    push: tuple[Step, ...]
    pull: tuple[Step, ...]
    last_push: Mapping[int, int]
    pulled: frozenset[int]


def program(rounds: Rounds, rank: int) -> Program:
    """The steps of ``rank``; round numbers count from 1, and the pull's go on where the push's end."""
    push = tuple(_steps(rounds.push, rank, 1))
    pull = tuple(_steps(rounds.pull, rank, 1 + len(rounds.push)))
    last_push = {piece.part: step.number for step in push for m in (*step.sends, *step.receives) for piece in m.pieces}
    pulled = frozenset(piece.part for step in pull for message in step.receives for piece in message.pieces)
    return Program(rank, push, pull, last_push, pulled)


def _steps(rounds: Iterable[Round], rank: int, first_number: int) -> Iterator[Step]:
    for number, round_ in enumerate(rounds, start=first_number):
        sends = _messages(round_.take(round_.src == rank), "dst", rank)
        receives = _messages(round_.take(round_.dst == rank), "src", rank)
        if sends or receives:
            yield Step(number, sends, receives)


def _messages(moves: Round, peer_column: str, rank: int) -> tuple[Message, ...]:
    """The moves to (or from) each peer as one message; nearest peers above ``rank`` first, to stagger the sends."""
    pieces: dict[int, list[Piece]] = {}
    peers = getattr(moves, peer_column)
    for peer, first, last, origin in np.stack((peers, moves.first, moves.last, moves.origin), axis=1).tolist():
        pieces.setdefault(peer, []).extend(Piece(part, origin) for part in range(first, last + 1))
    nearest = sorted(pieces, key=lambda peer: (peer < rank, peer))
    return tuple(Message(peer, tuple(sorted(pieces[peer]))) for peer in nearest)
