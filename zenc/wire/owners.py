"""The assignment of owners among holders, for predictions: equal to ``templates/cpu/zenc_cpu/owners/owners.h``.

A unit that c of n ranks hold takes c - 1 messages to its owner and n - 1 from it. The units of one holder are its own.
Each other one goes to the holder under which the squares of what all send and receive grow least: in ascending order,
up to CHOSEN_TOGETHER at a time by the same loads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zenc.plan.expressions import Ints, Mask
from zenc.wire.constants import CHOSEN_TOGETHER, MESSAGE_WEIGHT, RECEIVED_WEIGHT


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
    several = np.flatnonzero(counts > 1)
    while len(several):
        together = min(CHOSEN_TOGETHER, -(-len(several) // (4 * ranks)))
        at, several = several[:together], several[together:]
        more = counts[at] - 2
        costs = (
            sent * (ranks - 2) * MESSAGE_WEIGHT + more[:, None] * received * RECEIVED_WEIGHT * MESSAGE_WEIGHT + owned
        )
        costs[~_held(holder, starts[at], counts[at], ranks)] = np.iinfo(np.int64).max
        chosen = owners[at] = costs.argmin(axis=1)
        sent += np.bincount(chosen, minlength=ranks) * (ranks - 2)
        np.add.at(received, chosen, more)
        owned += np.bincount(chosen, minlength=ranks)
    return units, owners


def _held(holder: Ints, starts: Ints, counts: Ints, ranks: int) -> Mask:
    """Whether each rank holds each unit, [units, ranks]: unit i has the ``counts[i]`` holders from ``starts[i]`` on."""
    held = np.zeros((len(starts), ranks), bool)
    for row, start, count in zip(held, starts.tolist(), counts.tolist(), strict=True):
        row[holder[start : start + count]] = True
    return held


def _given(held: list[int], alone: Ints, ranks: int) -> tuple[Ints, Ints, Ints]:
    """What ranks send, receive and own before any choice, [ranks] each: they own what they alone hold."""
    own = np.bincount(alone, minlength=ranks)
    return np.array(held, np.int64) + own * (ranks - 2), -own, own.copy()
