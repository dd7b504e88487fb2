"""Contents of every incoming message of a rank, from the proof: known before anything moves.

    Pieces = (step, peer, part) -> (origin, ranks)*     # ascending; of announced and pushed parts only

``ranks`` are those whose contributions a piece has: of an announce their index sets, of part 0. Under one-shot
aggregation pieces are kept apart, by the rank that held them when the phase began, their origin; else there is one,
whose origin is the peer. Numbers of steps are those of ``zenc.plan.rank_schedule``. What a pull brings is complete.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np

from zenc.plan.ir import Phase, PhaseKind, Plan
from zenc.plan.unroll import Rounds
from zenc.verify.proof import Proof, verify
from zenc.verify.provenance import Deliveries, ranks_in

Ranks: TypeAlias = tuple[int, ...]
Pieces: TypeAlias = Mapping[tuple[int, int, int], tuple[tuple[int, Ranks], ...]]


def verify_with_pieces(plan: Plan, size: int, ranks: Iterable[int]) -> tuple[Rounds, Proof, Mapping[int, Pieces]]:
    """Prove ``plan`` among ``size`` ranks, as ``verify`` does, and keep what comes to each of ``ranks``.

    Raises VerificationError.
    """
    found: dict[int, dict[tuple[int, int, int], dict[int, Ranks]]] = {rank: defaultdict(dict) for rank in ranks}
    wanted = np.zeros(size, dtype=bool)
    wanted[list(found)] = True
    played = 0

    def observe(phase: Phase, number: int, deliveries: Deliveries) -> None:
        nonlocal played
        played += 1
        if phase.kind is not PhaseKind.PULL:
            for row in np.flatnonzero(wanted[deliveries.dst]).tolist():
                src, dst, part = int(deliveries.src[row]), int(deliveries.dst[row]), int(deliveries.part[row])
                pieces = _pieces(deliveries, row, src, part, phase.keeps_apart)
                found[dst][played, src, part].update(pieces)  # one sender's may come one by one

    rounds, proof = verify(plan, size, observe)
    ordered = {
        rank: {key: tuple(sorted(pieces.items())) for key, pieces in of_rank.items()} for rank, of_rank in found.items()
    }
    return rounds, proof, ordered


def _pieces(deliveries: Deliveries, row: int, src: int, part: int, one_shot: bool) -> dict[int, Ranks]:
    """What comes in a row: origin -> whose contributions."""
    if not one_shot:
        return {src: tuple(ranks_in(deliveries.members[row]))}
    begun = deliveries.begun
    origins = ranks_in(deliveries.holders[row])
    return {origin: tuple(ranks_in(begun[origin, part])) if len(begun) else (origin,) for origin in origins}
