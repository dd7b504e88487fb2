"""Volume: the data that each rank sends and receives, as shares of the tensor by the number of ranks in the sum.

    Volume = k -> share                                     # share x d_k x M, summed over k

A moved segment that sums k ranks holds the density d_k of its slots, so a share s of the tensor (1 / parts for a part)
weighs s d_k M bytes of values, where M is the weight of the dense tensor. Under one-shot aggregation a move of k
unmerged segments weighs k s d_1 M. k = 0 stands for dense segments. Where whole blocks travel, d_k is the density b_k
of units in blocks that have any (``blocks_of``). All parts count as equally long, indices and headers are left out:
this is the volume that papers give formulas for, counted from the moves. By holders the units of a part that k ranks
hold depend on its owner: shares can be negative there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from zenc.analysis.expected_bytes import TierCounts, blocks_of
from zenc.plan.expressions import Ints, Mask
from zenc.plan.ir import SET_KINDS, VALUE_KINDS, Phase, Plan
from zenc.scheme.model import Format
from zenc.verify.proof import verify
from zenc.verify.provenance import Deliveries

Volume: TypeAlias = Mapping[int, Fraction]

DENSE = 0
"""The k of dense segments."""


@dataclass(frozen=True, slots=True)
class PhaseVolume:
    """A phase among some number of ranks: the counts of the rank that sends most, and of the one that receives most.

    ``steps`` are the rounds that move anything; a message is all data that one rank sends another in a step.
    """

    steps: int
    messages_sent: int
    messages_received: int
    sent: Volume
    received: Volume

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON data; shares are fractions in text."""
        volumes = {
            name: {"dense" if k == DENSE else str(k): str(share) for k, share in getattr(self, name).items()}
            for name in ("sent", "received")
        }
        counts = {name: getattr(self, name) for name in ("steps", "messages_sent", "messages_received")}
        return {**counts, **volumes}


def volumes(plan: Plan, size: int, density: float) -> dict[str, PhaseVolume]:
    """Return the volume of each phase of ``plan``; the busiest rank is that where each holds ``density`` at random.

    Raises VerificationError as ``verify`` does.
    """
    tallies = {phase.name: _Tally(size) for phase in plan.of(*VALUE_KINDS)}
    tiers = TierCounts(plan, size)

    def observe(phase: Phase, number: int, deliveries: Deliveries) -> None:
        if phase.kind in SET_KINDS:
            return  # brings no values
        tally = tallies[phase.name]
        tally.count(deliveries)
        if plan.announces or (plan.across is not None and phase.tier == plan.tiers[-1]):
            tally.weigh_held(deliveries, tiers.owned(phase.kind, deliveries))
        else:
            tally.weigh(deliveries, phase.format is Format.DENSE)

    verify(plan, size, observe)
    blocks = blocks_of(plan)
    return {name: tally.volume(plan.parts(size), density, blocks[name]) for name, tally in tallies.items()}


class _Tally:
    """The counts of one phase: every rank's messages, and its segments by the number of their contributors."""

    def __init__(self, size: int) -> None:
        self.size, self.steps = size, 0
        self.messages_sent, self.messages_received = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self.sent, self.received = np.zeros((2, size, size + 1), np.int64), np.zeros((2, size, size + 1), np.int64)

    def count(self, moved: Deliveries) -> None:
        """Count the messages of one round."""
        self.steps += 1
        pairs = np.unique(moved.src * self.size + moved.dst)
        self.messages_sent += np.bincount(pairs // self.size, minlength=self.size)
        self.messages_received += np.bincount(pairs % self.size, minlength=self.size)

    def weigh(self, moved: Deliveries, dense: bool) -> None:
        """Count the segments of one round."""
        k = moved.contributors * 0 if dense else moved.contributors // moved.pieces
        np.add.at(self.sent[0], (moved.src, k), moved.pieces)
        np.add.at(self.received[0], (moved.dst, k), moved.pieces)

    def weigh_held(self, moved: Deliveries, owned: Mask) -> None:
        """Count the segments of one round by holders: the complete piece with its owner's contribution, and others."""
        k, others = moved.contributors // moved.pieces, moved.pieces - owned
        for table, ranks in ((self.sent, moved.src), (self.received, moved.dst)):
            table[0, :, self.size] += np.bincount(ranks[owned], minlength=self.size)
            np.add.at(table[1], (ranks, k), others)

    def volume(self, parts: int, density: float, block: int) -> PhaseVolume:
        """Return the volume of the busiest ranks, where whole blocks of ``block`` units travel."""
        drawn = np.arange(self.size + 1, dtype=np.float64) * block
        weights: npt.NDArray[np.float64] = 1 - (1 - density) ** drawn
        weights[DENSE] = 1.0
        sent, received = (_busiest(table, weights, parts) for table in (self.sent, self.received))
        most_sent, most_received = int(self.messages_sent.max()), int(self.messages_received.max())
        return PhaseVolume(self.steps, most_sent, most_received, sent, received)


def _busiest(tables: Ints, weights: npt.NDArray[np.float64], parts: int) -> Volume:
    """Return the volume of the busiest rank.

    k ranks hold (d(k) - k / n * d(n)) / (n - k) of the tensor of a part that none of them owns: their units less those
    that they own, shared out among the other parts. Fewer ``parts`` than ranks are as many times as large.
    """
    whole, others = tables
    n = whole.shape[1] - 1
    below = np.arange(n)
    of_others = np.append((weights[:-1] - below / n * weights[n]) / (n - below) * n, 0.0)
    busiest = int(np.argmax(np.round(whole @ weights + others @ of_others, 9)))
    volume = {k: Fraction(pieces, parts) for k, pieces in enumerate(whole[busiest].tolist())}
    for k, pieces in enumerate(others[busiest, :n].tolist()):
        volume[k] += Fraction(pieces * n, parts * (n - k))
        volume[n] -= Fraction(pieces * k, parts * (n - k))
    return {k: share for k, share in volume.items() if share}
