"""The explanation of a plan: its steps, the messages of one rank, and the bytes of all.

The bytes are counted exactly (``zenc.analysis.exact_traffic``), for gradients that were drawn or recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from zenc.analysis.exact_traffic import CallTraffic, ExactBytes
from zenc.gradients.index_sets import Figures, Gradients, ensure, figures
from zenc.gradients.spec import GradientSpec
from zenc.plan.ir import Phase, Plan
from zenc.verify.proof import Proof, verify
from zenc.verify.provenance import Deliveries

if TYPE_CHECKING:
    from zenc.analysis.placement import Placement
    from zenc.analysis.scaling import ScalingReport


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
    """Bytes by rank: of the one explained, and of the busiest. ``formats``: the bodies of all ranks, by format."""

    sent: int
    received: int
    most_sent: int
    most_received: int
    formats: dict[str, int]


@dataclass(frozen=True, slots=True)
class Explanation:
    """``busiest`` is the rank that sends or receives most. ``source`` says where the gradients come from.

    ``general``: what it costs for any number of ranks; ``placement``: what it asks of a topology. Of a ``choice`` it is
    that of the candidate with the least bytes; ``candidates`` has all of them.
    """

    plan: Plan
    proof: Proof
    rank: int
    load: GradientSpec
    source: str
    messages: tuple[MessageCost, ...]
    traffic: dict[str, Traffic]
    busiest: int
    figures: Figures
    general: ScalingReport | None = None
    placement: Placement | None = None
    choice: str = ""
    candidates: Mapping[str, Explanation] = field(default_factory=dict)

    @property
    def busiest_bytes(self) -> int:
        """The bytes that the busiest rank sends, or receives if that is more."""
        return max(self.traffic["total"].most_sent, self.traffic["total"].most_received)

    def over(self, bytes: int) -> float | None:
        """The busiest rank's bytes as a multiple of ``bytes``; None of nothing."""
        return self.busiest_bytes / bytes if bytes else None

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON data; bytes include headers."""
        figures = self.figures
        return {
            "plan": self.plan.to_json(),
            "size": self.proof.size,
            "parts": self.proof.parts,
            "rounds": self.proof.rounds,
            "owners": list(self.proof.owners),
            "rank": self.rank,
            "load": {**asdict(self.load), "source": self.source},
            "gradients": asdict(figures),
            "messages": [asdict(message) for message in self.messages],
            "bytes": {phase: asdict(traffic) for phase, traffic in self.traffic.items()},
            "busiest": {
                "rank": self.busiest,
                "bytes": self.busiest_bytes,
                "over_dense_ring": self.over(figures.dense_ring_bytes),
                "over_bound": self.over(figures.bound_bytes),
            },
            "dense_ring_bytes": figures.dense_ring_bytes,
            "bound_bytes": figures.bound_bytes,
            **({"choice": self.choice, "candidates": self._candidates()} if self.candidates else {}),
            **({"general": self.general.to_json()} if self.general else {}),
            **({"placement": self.placement.to_json()} if self.placement else {}),
        }

    def _candidates(self) -> dict[str, dict[str, int]]:
        return {
            name: {"bytes": one.busiest_bytes, "steps": sum(one.proof.rounds.values())}
            for name, one in self.candidates.items()
        }

    def text(self) -> str:
        """The same for a terminal."""
        from zenc.analysis.explanation_text import explanation_text

        return explanation_text(self)


def explain(plan: Plan, rank: int, of: Gradients, load: GradientSpec, source: str = "") -> Explanation:
    """Prove ``plan`` among the ranks of ``of`` and count its messages; ``load`` and ``source`` describe the gradients.

    Raises VerificationError as ``verify`` does, and SchemeError (``bad-load``) for a rank that is none of them.
    """
    size = of.size
    ensure([(not 0 <= rank < size, f"rank {rank} is not among the ranks 0 to {size - 1}")])
    moves, exact = _Moves(rank), ExactBytes(plan, of)

    def observe(phase: Phase, number: int, deliveries: Deliveries) -> None:
        moves.observe(phase, number, deliveries)
        exact.observe(phase, number, deliveries)

    rounds, proof = verify(plan, size, observe)
    weight = exact.traffic()
    bytes = _bytes(weight, rank)
    places = [send.span.name if send.span else "" for send in rounds.sends]
    messages = tuple(
        MessageCost(*what, parts, most, bytes[what], places[line])
        for what, parts, most, line in moves.found
        if what in bytes  # by holders, a message without values is not sent
    )
    total = weight.total
    busiest = int(np.maximum(total.sent, total.received).argmax())
    return Explanation(plan, proof, rank, load, source, messages, _traffic(weight, rank), busiest, figures(of))


_What = tuple[str, int, str, int]  # phase, round, direction, peer


def _bytes(weight: CallTraffic, rank: int) -> dict[_What, int]:
    """The bytes of the messages of ``rank``."""
    found: dict[_What, int] = {}
    for messages in weight.messages:
        for direction, mine, peer in (("send", messages.src, messages.dst), ("receive", messages.dst, messages.src)):
            for row in np.flatnonzero(mine == rank).tolist():
                found[messages.phase, messages.number, direction, int(peer[row])] = int(messages.bytes[row])
    return found


class _Moves:
    """Notes the messages of one rank while the verifier plays: what, parts, most contributors, line."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.found: list[tuple[_What, str, int, int]] = []

    def observe(self, phase: Phase, number: int, deliveries: Deliveries) -> None:
        for direction, mine, peer in (
            ("send", deliveries.src, deliveries.dst),
            ("receive", deliveries.dst, deliveries.src),
        ):
            for other in np.unique(peer[mine == self.rank]).tolist():
                rows = np.flatnonzero((mine == self.rank) & (peer == other))
                parts = _ranges(np.unique(deliveries.part[rows]).tolist())
                most, line = int(deliveries.contributors[rows].max()), int(deliveries.line[rows[0]])
                self.found.append(((phase.name, number, direction, other), parts, most, line))


def _traffic(weight: CallTraffic, rank: int) -> dict[str, Traffic]:
    found = {}
    for name, by_rank in (*weight.traffic.items(), ("total", weight.total)):
        formats = {wire: int(bodies.sum()) for wire, bodies in by_rank.formats_sent.items()}
        sent, received = by_rank.sent, by_rank.received
        most = int(sent.max()), int(received.max())
        found[name] = Traffic(int(sent[rank]), int(received[rank]), *most, formats)
    return found


def _ranges(parts: list[int]) -> str:
    """``[0, 1, 2, 5]`` as "0-2, 5"."""
    runs: list[list[int]] = []
    for part in parts:
        if runs and part == runs[-1][1] + 1:
            runs[-1][1] = part
        else:
            runs.append([part, part])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
