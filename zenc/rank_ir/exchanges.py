"""Exchanges of all ranks, from the proof: the segments that travel in a step, and whose contributions each has.

    ExchangeTable = Phase number, (src dst part origin ranks)*      # columns [rows]: one row a segment
    RankStep      = rank number  sends: (peer -> Piece+)  receives: (peer -> Piece+)
    Piece         = part origin ranks                               # in the order in which they travel

A rank's step is the table's rows that it sends or receives, so each receive has exactly one send in the same step.
Under one-shot aggregation pieces are kept apart, by the rank that held them when the phase began, their origin;
otherwise there is one, whose origin is its sender. The pieces of an announce are index sets: of part 0, or of the parts
of a directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from zenc.plan.expressions import Ints, Mask
from zenc.plan.ir import VALUE_KINDS, Phase, PhaseKind, Plan
from zenc.verify.losses import Keepers
from zenc.verify.proof import verify
from zenc.verify.provenance import Deliveries, members_of, own_contributions
from zenc.wire.mix import Words


@dataclass(frozen=True, slots=True, eq=False)
class ExchangeTable:
    """The segments that travel in one step of ``phase``: arrays [rows], and ``ranks`` as bits [rows, words]."""

    phase: Phase
    src: Ints
    dst: Ints
    part: Ints
    origin: Ints
    ranks: Words


def exchange_table(phase: Phase, moved: Deliveries, size: int) -> ExchangeTable:
    """Return the exchange of a step among ``size`` ranks, segment by segment; ``moved`` are its deliveries."""
    src, dst, part = moved.src, moved.dst, moved.part
    alone = own_contributions(size, 1)[:, 0]
    if phase.completes and not len(moved.members):
        everyone = np.bitwise_or.reduce(alone, axis=0)
        return ExchangeTable(phase, src, dst, part, src, np.broadcast_to(everyone, (len(src), len(everyone))))
    if phase.completes or not phase.keeps_apart:
        return ExchangeTable(phase, src, dst, part, src, moved.members)
    row, origin = members_of(moved.holders)
    ranks = moved.begun[origin, part[row]] if len(moved.begun) else alone[origin]
    return ExchangeTable(phase, src[row], dst[row], part[row], origin, ranks)


class Piece(NamedTuple):
    """A segment in a message: the contributions of ``ranks`` to ``part``."""

    part: int
    origin: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RankStep:
    """The messages of ``rank`` in a step, by peer; ``number`` counts the steps of all phases from 1."""

    rank: int
    number: int
    sends: dict[int, list[Piece]] = field(default_factory=dict)
    receives: dict[int, list[Piece]] = field(default_factory=dict)


RankSchedule: TypeAlias = dict[str, list[RankStep]]
"""The steps of one rank by the name of their phase; a step without messages of this rank is left out."""


@dataclass(frozen=True, slots=True)
class Schedules:
    """Schedules by rank; ``encoded`` are, by phase with a code, the parts that any rank sends in it.

    ``keepers``: the rank that keeps each loss; None for a plan without losses. ``early``: as in ``RankProgram``.
    """

    of_rank: dict[int, RankSchedule]
    encoded: dict[str, set[int]]
    keepers: Keepers | None
    early: int


def schedules(plan: Plan, size: int, ranks: Iterable[int]) -> Schedules:
    """Return the steps of each of ``ranks`` in all phases of ``plan``; raises VerificationError."""
    found = {rank: {phase.name: list[RankStep]() for phase in plan.phases} for rank in ranks}
    encoded: dict[str, set[int]] = {phase.name: set() for phase in plan.phases if phase.code is not None}
    wanted = np.zeros(size, dtype=bool)
    wanted[list(found)] = True
    played, early, pushed = 0, _LATE, np.zeros(plan.parts(size), dtype=np.int64)

    def observe(phase: Phase, _: int, moved: Deliveries) -> None:
        nonlocal played, early
        played += 1
        if phase.completes:  # what a step sends has been pushed before
            early = min(early, played - 1 - int(pushed[moved.part].max(initial=0)))
        elif phase.kind is PhaseKind.PUSH:
            pushed[moved.part] = played
        for step in _steps(exchange_table(phase, moved, size), played, wanted):
            found[step.rank][phase.name].append(step)
        if phase.code is not None:
            encoded[phase.name].update(np.unique(moved.part).tolist())

    _, proof = verify(plan, size, observe)
    return Schedules(found, encoded, proof.keepers, early if early < _LATE and _is_plain(plan) else 0)


_LATE = 1 << 40


def _is_plain(plan: Plan) -> bool:
    """Return whether ``plan`` is a push and a pull, after an announce at most, and nothing happens in between."""
    push, pull = plan.phases[-2:]
    kinds = tuple(phase.kind for phase in plan.phases if phase.kind is not PhaseKind.ANNOUNCE)
    return kinds == VALUE_KINDS and not (plan.is_lossy or plan.across or push.one_shot or pull.one_shot)


def _steps(table: ExchangeTable, number: int, wanted: Mask) -> Iterable[RankStep]:
    steps = dict[int, RankStep]()
    for rank, peer, piece in _pieces(table, table.src, table.dst, wanted):
        steps.setdefault(rank, RankStep(rank, number)).sends.setdefault(peer, []).append(piece)
    for rank, peer, piece in _pieces(table, table.dst, table.src, wanted):
        steps.setdefault(rank, RankStep(rank, number)).receives.setdefault(peer, []).append(piece)
    return steps.values()


def _pieces(table: ExchangeTable, mine: Ints, peers: Ints, wanted: Mask) -> Iterator[tuple[int, int, Piece]]:
    """Yield rank, peer and piece of each row: nearest peers above a rank first, to stagger the sends."""
    rows = np.flatnonzero(wanted[mine])
    order = rows[np.lexsort((table.origin[rows], table.part[rows], (peers[rows] - mine[rows]) % len(wanted)))]
    row, ranks = members_of(table.ranks[order])
    ends, flat = np.cumsum(np.bincount(row, minlength=len(order))), ranks.tolist()
    starts = np.r_[0, ends][:-1]
    columns = (mine[order], peers[order], table.part[order], table.origin[order], starts, ends)
    for rank, peer, part, origin, start, end in np.stack(columns, axis=1).tolist():
        yield rank, peer, Piece(part, origin, tuple(flat[start:end]))
