"""Whose contributions come with which message to one rank: under Holders that is enough to know its exact bytes.

    Cargo = (step, peer, part) -> ranks                         # ascending; of pushed parts only

Numbers of steps are those of ``zenc.plan.program``. What a pull brings is complete, of all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from zenc.errors import Diagnostic, InternalError
from zenc.plan.model import Phase, Plan
from zenc.plan.provenance import Deliveries
from zenc.plan.rounds import Rounds
from zenc.plan.verify import Proof, verify

Cargo: TypeAlias = Mapping[tuple[int, int, int], tuple[int, ...]]


def verify_with_cargo(plan: Plan, size: int, rank: int) -> tuple[Rounds, Proof, Cargo]:
    """Prove ``plan``, of one tier, among ``size`` ranks, as ``verify`` does, and keep what its push brings ``rank``."""
    if len(plan.pushes) != 1:
        raise InternalError(Diagnostic("internal", "cargo is kept for plans of one tier"))
    found: dict[tuple[int, int, int], tuple[int, ...]] = {}

    def observe(kind: str, phase: Phase, number: int, deliveries: Deliveries) -> None:
        if kind == "push":
            for src, part, members in _arriving(deliveries, rank):
                before = found.get((number, src, part), ())
                found[number, src, part] = tuple(sorted({*before, *members}))

    rounds, proof = verify(plan, size, observe)
    first = proof.announce_rounds
    return rounds, proof, {(number + first, src, part): ranks for (number, src, part), ranks in found.items()}


def _arriving(deliveries: Deliveries, rank: int) -> list[tuple[int, int, list[int]]]:
    """(sender, part, contributors) of what comes to ``rank``; one sender's contributors may come one by one."""
    rows = np.flatnonzero(deliveries.dst == rank)
    bits = np.unpackbits(deliveries.members[rows].view(np.uint8), axis=1, bitorder="little")
    found = zip(deliveries.src[rows].tolist(), deliveries.part[rows].tolist(), bits, strict=True)
    return [(src, part, np.flatnonzero(mine).tolist()) for src, part, mine in found]
