"""Reuse within a step: one index serves all copies of a piece, one merge all pieces that meet.

Counted at the first ranks, for all: in schemes for many ranks they are like the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from zenc.analysis.expected_bytes import kinds_of
from zenc.plan.expressions import Ints
from zenc.simulator.contributor_counts import DeliveryCounts

SEEN = 16
"""Ranks that are looked at."""


@dataclass(frozen=True, slots=True)
class Shared:
    """``pieces`` in a message; ``copies`` of a part that a rank sends; ``met``: pieces of a part that come to it.

    ``contributors``: all different numbers of ranks that contributed to a piece.
    """

    pieces: float = 1.0
    copies: float = 1.0
    met: float = 1.0
    contributors: frozenset[int] = frozenset()


ONE = Shared()
"""Messages of one piece each, of which each goes to one rank and meets no other."""


class Sharing:
    """Counts what passes of one step, of a plan with so many ``parts``."""

    def __init__(self, parts: int) -> None:
        self._sent, self._came, self._pieces = _End(parts), _End(parts), 0
        self._contributors: frozenset[int] = frozenset()

    def watch(self, carried: Iterator[DeliveryCounts]) -> Iterator[DeliveryCounts]:
        """All of ``carried``, counted."""
        for some in carried:
            self._pieces += int(some.pieces.sum())
            self._contributors |= frozenset(kinds_of(some.contributors))
            self._sent.rows += len(self._sent.see(some.src, some.part))
            self._came.rows += int(some.pieces[self._came.see(some.dst, some.part)].sum())
            yield some

    def of(self, messages: int) -> Shared:
        """The reuse that was counted, for a step of so many messages."""
        return Shared(self._pieces / max(1, messages) or 1.0, self._sent.mean, self._came.mean, self._contributors)


class _End:
    """Senders, or receivers: how often each has to do with each part, which is what ``rows`` counts."""

    def __init__(self, parts: int) -> None:
        self._parts, self.rows = parts, 0
        self._there = np.zeros(SEEN * parts, dtype=bool)

    def see(self, rank: Ints, part: Ints) -> Ints:
        """Take what is of the first ranks; returns where it is."""
        here = np.flatnonzero(rank < SEEN)
        self._there[rank[here] * self._parts + part[here]] = True
        return here

    @property
    def mean(self) -> float:
        return self.rows / max(1, int(np.count_nonzero(self._there))) or 1.0
