"""The assignment of owners among holders, for predictions: equal to ``templates/cpu/zenc_cpu/owners/owners.h``.

A unit that c of n ranks hold takes c - 1 messages to its owner and n - 1 from it. The units of one holder are its own.
Each other one goes, in ascending order, to the holder under which the squares of what all send and receive grow least.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zenc.plan.expressions import Ints
from zenc.wire.constants import MESSAGE_WEIGHT, RECEIVED_WEIGHT


def owners_of(held: Sequence[Ints]) -> tuple[Ints, Ints]:
    """The units that some rank holds, ascending, and the owner of each. ``held[rank]`` are that rank's, ascending."""
    ranks = len(held)
    ids = np.concatenate(held) if ranks else np.zeros(0, np.int64)
    holder = np.repeat(np.arange(ranks), [len(mine) for mine in held])
    order = np.argsort(ids, kind="stable")  # the holders of a unit stay in ascending order
    units, starts, counts = np.unique(ids[order], return_index=True, return_counts=True)
    holder = holder[order]
    owners = holder[starts]
    sent, received, owned = _given([len(mine) for mine in held], owners[counts == 1], ranks)
    for at in np.flatnonzero(counts > 1).tolist():
        start, count = int(starts[at]), int(counts[at])
        sending, receiving = (ranks - 2) * MESSAGE_WEIGHT, (count - 2) * RECEIVED_WEIGHT * MESSAGE_WEIGHT
        those = holder[start : start + count].tolist()
        costs = [sent[k] * sending + received[k] * receiving + owned[k] for k in those]
        owner = owners[at] = those[costs.index(min(costs))]
        sent[owner] += ranks - 2
        received[owner] += count - 2
        owned[owner] += 1
    return units, owners


def _given(held: list[int], alone: Ints, ranks: int) -> tuple[list[int], list[int], list[int]]:
    """What ranks send, receive and own before any choice: they hold units, and own those that they alone hold."""
    own = np.bincount(alone, minlength=ranks).tolist()
    sent = [units + mine * (ranks - 2) for units, mine in zip(held, own, strict=True)]
    return sent, [-mine for mine in own], own
