"""What a plan does and weighs, for a person: the steps, the messages of one rank, and the bytes to expect.

The prediction assumes that every rank holds ``density`` of the units, at random and independently of the others: a
piece with the contributions of k ranks then holds 1 - (1 - density)^k of its slots. Real gradients overlap more
(fewer bytes in the pull) and, under ``imbalanced``, crowd in a few parts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from zenc.errors import Diagnostic, SchemeError
from zenc.plan.formats import (
    DTYPE_BYTES,
    MESSAGE_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentShape,
    body_bytes,
    wire_format,
)
from zenc.plan.holder_load import weights as by_holders
from zenc.plan.model import Phase, Plan
from zenc.plan.parts import part_sizes
from zenc.plan.provenance import Deliveries
from zenc.plan.verify import Proof, verify
from zenc.scheme.model import Format

if TYPE_CHECKING:
    from zenc.plan.placement import Placement
    from zenc.plan.symbolic import Symbolic


@dataclass(frozen=True, slots=True)
class Load:
    """The gradient that the prediction is for. ``units`` of ``width`` values of ``dtype`` (f32, f64, f16, bf16)."""

    units: int
    width: int
    dtype: str
    density: float


@dataclass(frozen=True, slots=True)
class MessageCost:
    """One message of the rank that is explained.

    ``contributors`` is the most that any piece in it sums; ``at`` is the place of (the first of) its moves.
    """

    phase: str
    round: int
    direction: str
    peer: int
    parts: str
    contributors: int
    bytes: int
    at: str = ""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes by rank: of the one explained, and of the busiest."""

    sent: int
    received: int
    most_sent: int
    most_received: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """``general``: what it costs for any number of ranks; ``placement``: what it asks of a topology."""

    plan: Plan
    proof: Proof
    rank: int
    load: Load
    messages: tuple[MessageCost, ...]
    traffic: dict[str, Traffic]
    dense_ring_bytes: int
    general: Symbolic | None = None
    placement: Placement | None = None

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON data; bytes include headers."""
        return {
            "plan": self.plan.to_json(),
            "size": self.proof.size,
            "parts": self.proof.parts,
            "rounds": self.proof.rounds,
            "owners": list(self.proof.owners),
            "rank": self.rank,
            "load": asdict(self.load),
            "messages": [asdict(message) for message in self.messages],
            "bytes": {phase: asdict(traffic) for phase, traffic in self.traffic.items()},
            "dense_ring_bytes": self.dense_ring_bytes,
            **({"general": self.general.to_json()} if self.general else {}),
            **({"placement": self.placement.to_json()} if self.placement else {}),
        }

    def text(self) -> str:
        """The same for a terminal."""
        from zenc.plan.explain_text import explanation_text

        return explanation_text(self)


def explain(plan: Plan, size: int, rank: int, load: Load) -> Explanation:
    """Prove ``plan`` among ``size`` ranks and weigh its messages under ``load``.

    Raises VerificationError as ``verify`` does, and SchemeError (``bad-load``) for a rank or load that can't be.
    """
    _demand_sound(size, rank, load)
    scales = _Scales(plan, size, rank, load)
    rounds, proof = verify(plan, size, scales.observe)
    messages = tuple(replace(m, at=str(rounds.sends[line].span or "")) for m, line in scales.messages)
    traffic = {name: scales.traffic(name) for name in (*scales.sent, "total")}
    whole = load.units * load.width * DTYPE_BYTES[load.dtype]
    ring = 2 * (size - 1) * whole // size
    return Explanation(plan, proof, rank, load, messages, traffic, ring)


def _demand_sound(size: int, rank: int, load: Load) -> None:
    problems = [
        (not 0 <= rank < size, f"rank {rank} is not among the ranks 0 to {size - 1}"),
        (not 0 <= load.density <= 1, f"a density is between 0 and 1, not {load.density}"),
        (load.units < 0 or load.width < 1, f"{load.units} units of {load.width} values make no tensor"),
        (load.dtype not in DTYPE_BYTES, f"unknown dtype {load.dtype!r}; one of {', '.join(DTYPE_BYTES)}"),
    ]
    found = [Diagnostic("bad-load", message) for wrong, message in problems if wrong]
    if found:
        raise SchemeError(found)


class _Scales:
    """Weighs every delivery that the verifier plays, and keeps the messages of one rank."""

    def __init__(self, plan: Plan, size: int, rank: int, load: Load) -> None:
        self.plan, self.size, self.rank, self.load = plan, size, rank, load
        self.parts = plan.parts(size)
        self.slots = part_sizes(plan.mapping, load.units, self.parts)
        self.messages: list[tuple[MessageCost, int]] = []
        kinds = ("announce", "push", "pull") if plan.announce else ("push", "pull")
        self.sent = {kind: np.zeros(size, np.int64) for kind in kinds}
        self.received = {kind: np.zeros(size, np.int64) for kind in kinds}

    def observe(self, kind: str, phase: Phase, number: int, deliveries: Deliveries) -> None:
        weights = self._weights(kind, phase, deliveries)
        pairs = deliveries.src * self.size + deliveries.dst
        first = np.unique(pairs, return_index=True)[1]
        weights[first] += MESSAGE_HEADER_BYTES
        np.add.at(self.sent[kind], deliveries.src, weights)
        np.add.at(self.received[kind], deliveries.dst, weights)
        for direction, mine, peer in (
            ("send", deliveries.src, deliveries.dst),
            ("receive", deliveries.dst, deliveries.src),
        ):
            for other in np.unique(peer[mine == self.rank]).tolist():
                rows = np.flatnonzero((mine == self.rank) & (peer == other))
                parts = _ranges(np.unique(deliveries.part[rows]).tolist())
                most, total = int(deliveries.contributors[rows].max()), int(weights[rows].sum())
                message = MessageCost(self.plan.name_of(kind, phase), number, direction, other, parts, most, total)
                self.messages.append((message, int(deliveries.line[rows[0]])))

    def _weights(self, kind: str, phase: Phase, deliveries: Deliveries) -> np.ndarray[Any, np.dtype[np.int64]]:
        if self.plan.announce:
            load = self.load
            unit_bytes = load.width * DTYPE_BYTES[load.dtype]
            return by_holders(kind, deliveries, self.size, load.units, load.density, unit_bytes)
        columns = np.stack((deliveries.part, deliveries.contributors, deliveries.pieces))
        kinds, index = np.unique(columns, axis=1, return_inverse=True)
        weigh = lru_cache(maxsize=None)(self._part_bytes)
        slots = [self.slots[part] for part in kinds[0].tolist()]
        rows = zip(slots, kinds[1].tolist(), kinds[2].tolist(), strict=True)
        weights = [weigh(kind, phase.format, *row) for row in rows]
        return np.asarray(weights, dtype=np.int64)[index.reshape(-1)]

    def _part_bytes(self, kind: str, format: Format, slots: int, contributors: int, segments: int) -> int:
        """One part of a message: ``segments`` with ``contributors`` together."""
        density = 1.0 if format is Format.DENSE else 1 - (1 - self.load.density) ** (contributors // segments)
        count = round(slots * density)
        shape = SegmentShape(slots, count, self.load.width, DTYPE_BYTES[self.load.dtype])
        return segments * (SEGMENT_HEADER_BYTES + body_bytes(wire_format(format, slots, count), shape))

    def traffic(self, phase: str) -> Traffic:
        sent, received = (
            np.sum([*by.values()], axis=0) if phase == "total" else by[phase] for by in (self.sent, self.received)
        )
        return Traffic(int(sent[self.rank]), int(received[self.rank]), int(sent.max()), int(received.max()))


def _ranges(parts: list[int]) -> str:
    """``[0, 1, 2, 5]`` as "0-2, 5"."""
    runs: list[list[int]] = []
    for part in parts:
        if runs and part == runs[-1][1] + 1:
            runs[-1][1] = part
        else:
            runs.append([part, part])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
