"""Whose contributions, and whose segments, come with which message to one rank: known before anything moves.

    Cargo   = (step, peer, part) -> ranks                       # ascending; of pushed parts only
    Pieces  = (step, peer, part) -> (origin, contributors)*     # ascending; of pushed parts only
    Sets    = (step, peer) -> ranks                             # ascending; whose index sets are announced

A cargo says whose contributions are in a message: under Holders that is enough to know its exact bytes. Pieces are
the segments that one has, and how many ranks have contributed to each: under one-shot they are kept apart, by the ranks
that held them when the phase began; else there is one, whose origin is the peer. Numbers of steps are those of
``zenc.plan.rank_schedule``. What a pull brings is complete, of all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from zenc.errors import Diagnostic, InternalError
from zenc.plan.ir import Phase, Plan
from zenc.plan.unroll import Rounds
from zenc.verify.proof import Proof, verify
from zenc.verify.provenance import Deliveries, Words, ranks_in

Cargo: TypeAlias = Mapping[tuple[int, int, int], tuple[int, ...]]
Pieces: TypeAlias = Mapping[tuple[int, int, int], tuple[tuple[int, int], ...]]
Sets: TypeAlias = Mapping[tuple[int, int], tuple[int, ...]]


def verify_with_cargo(plan: Plan, size: int, rank: int) -> tuple[Rounds, Proof, Cargo]:
    """Prove ``plan``, of one tier, among ``size`` ranks, as ``verify`` does, and keep what its push brings ``rank``."""
    rounds, proof, _, cargo = verify_with_sets(plan, size, rank)
    return rounds, proof, cargo


def verify_with_sets(plan: Plan, size: int, rank: int) -> tuple[Rounds, Proof, Sets, Cargo]:
    """The same, with the index sets that the announce brings, if there is one."""
    if len(plan.pushes) != 1:
        raise InternalError(Diagnostic("internal", "cargo is kept for plans of one tier"))
    sets: dict[tuple[int, int], tuple[int, ...]] = {}
    found: dict[tuple[int, int, int], tuple[int, ...]] = {}

    def observe(kind: str, phase: Phase, number: int, deliveries: Deliveries) -> None:
        if kind == "pull":
            return
        for src, part, members in _arriving(deliveries, deliveries.members, rank):
            if kind == "announce":
                sets[number, src] = tuple(sorted({*sets.get((number, src), ()), *members}))
            else:
                found[number, src, part] = tuple(sorted({*found.get((number, src, part), ()), *members}))

    rounds, proof = verify(plan, size, observe)
    first = proof.announce_rounds
    return rounds, proof, sets, {(number + first, src, part): ranks for (number, src, part), ranks in found.items()}


def verify_with_pieces(plan: Plan, size: int, rank: int) -> tuple[Rounds, Proof, Pieces]:
    """Prove ``plan`` among ``size`` ranks, as ``verify`` does, and keep which segments its pushes bring ``rank``."""
    found: dict[tuple[int, int, int], set[tuple[int, int]]] = {}
    played = 0

    def observe(kind: str, phase: Phase, number: int, deliveries: Deliveries) -> None:
        nonlocal played
        played += 1
        if kind != "push":
            return
        apart = plan.one_shot(phase)
        for src, part, ranks in _arriving(deliveries, deliveries.holders if apart else deliveries.members, rank):
            pieces = {(origin, _contributors(deliveries, origin, part)) for origin in ranks}
            found.setdefault((played, src, part), set()).update(pieces if apart else {(src, len(ranks))})

    rounds, proof = verify(plan, size, observe)
    return rounds, proof, {key: tuple(sorted(pieces)) for key, pieces in found.items()}


def _contributors(deliveries: Deliveries, origin: int, part: int) -> int:
    """How many ranks contributed to what ``origin`` held of ``part`` when the phase began."""
    return int(np.bitwise_count(deliveries.begun[origin, part]).sum()) if len(deliveries.begun) else 1


def _arriving(deliveries: Deliveries, whose: Words, rank: int) -> list[tuple[int, int, list[int]]]:
    """(sender, part, ranks) of what comes to ``rank``; one sender's may come one by one."""
    rows = np.flatnonzero(deliveries.dst == rank)
    found = zip(deliveries.src[rows].tolist(), deliveries.part[rows].tolist(), whose[rows], strict=True)
    return [(src, part, ranks_in(words)) for src, part, words in found]
