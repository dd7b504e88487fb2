"""Latencies, fitted to empty calls of schemes with few steps and with many.

Plain messages of the process group would say little: they go another way than a scheme's. Where ranks share processors
even these are mostly work of theirs, which longer messages hide behind the wire, so they are an upper bound.
"""

from __future__ import annotations

from dataclasses import dataclass

RING = (
    "scheme ring { communication: ring aggregation: incremental partition: parallelism "
    "balance: balanced by permutation push: coo pull: coo }"
)
"""2 (n - 1) steps among n ranks, in each of which a rank sends one message."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds of a call beside its steps, of a step, and of each message that a rank sends in it."""

    call: float
    step: float
    message: float


def latency(size: int, one: float, two: float, ring: float) -> Latency:
    """Seconds of a call, a step and a message, from those of empty calls among ``size`` ranks, 2 or more.

    ``one`` is of one step in which each rank sends to all others, ``two`` of two such steps, ``ring`` of ``RING``.
    Among two ranks messages can't be told from steps, and count as them.
    """
    exchange = max(0.0, two - one)
    step = exchange if size == 2 else min(exchange, max(0.0, (ring - two) / (2 * (size - 2))))
    return Latency(max(0.0, one - exchange), step, (exchange - step) / (size - 1))
