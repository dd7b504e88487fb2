"""The explanation of a plan: its steps, the messages of one rank, and the bytes of all.

The bytes are counted exactly (``zenc.analysis.exact_traffic``), for gradients that were drawn or recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from zenc.analysis.compression_text import sentences
from zenc.analysis.contribution import guesses, weights
from zenc.analysis.exact_traffic import CallTraffic, ExactBytes
from zenc.analysis.placement import placement_text
from zenc.analysis.scaling import symbolic_text
from zenc.common.wording import count, size_text
from zenc.gradients.index_sets import Figures, Gradients, ensure, figures
from zenc.gradients.spec import GradientSpec
from zenc.plan.ir import Phase, Plan
from zenc.plan.unroll import expand
from zenc.verify.proof import Proof, prove
from zenc.verify.provenance import Deliveries
from zenc.wire.constants import DTYPE_BYTES

if TYPE_CHECKING:
    from zenc.analysis.placement import Placement
    from zenc.analysis.scaling import ScalingReport


@dataclass(frozen=True, slots=True)
class MessageCost:
    """A message of the rank that is explained.

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
    """The explanation; ``busiest`` is the rank that sends or receives most, ``source`` the origin of the gradients.

    ``general``: its costs for any number of ranks; ``placement``: its demands on a topology. For a ``choice`` it is
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
        """Return the busiest rank's bytes as a multiple of ``bytes``; None for 0."""
        return self.busiest_bytes / bytes if bytes else None

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as JSON data; bytes include headers."""
        figures = self.figures
        candidates = {
            name: {"bytes": one.busiest_bytes, "steps": sum(one.proof.rounds.values())}
            for name, one in self.candidates.items()
        }
        return {
            "plan": self.plan.to_json(),
            "size": self.proof.size,
            "parts": self.proof.parts,
            "rounds": self.proof.rounds,
            "owners": list(self.proof.owners),
            "rank": self.rank,
            **({"compression": sentences(self.plan), "estimated": guesses(self.plan)} if self.plan.is_lossy else {}),
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
            **({"choice": self.choice, "candidates": candidates} if self.candidates else {}),
            **({"general": self.general.to_json()} if self.general else {}),
            **({"placement": self.placement.to_json()} if self.placement else {}),
        }

    def text(self) -> str:
        """Return the explanation as text for a terminal."""
        return explanation_text(self)


def explain(
    plan: Plan, rank: int, of: Gradients, load: GradientSpec, source: str = "", gpu: bool = False
) -> Explanation:
    """Prove ``plan`` among the ranks of ``of`` and count its messages; ``load`` and ``source`` describe the gradients.

    Raises VerificationError as ``verify`` does, and SchemeError (``bad-load``) for an unknown rank.
    """
    ensure([(not 0 <= rank < of.size, f"rank {rank} is not among the ranks 0 to {of.size - 1}")])
    rounds = expand(plan, of.size)
    moves, exact = _Moves(rank), ExactBytes(plan, of, gpu)

    def observe(phase: Phase, number: int, deliveries: Deliveries) -> None:
        moves.observe(phase, number, deliveries)
        exact.observe(phase, number, deliveries)

    proof = prove(plan, rounds, observe)
    weight = exact.traffic()
    bytes = _bytes(weight, rank)
    places = [send.span.name if send.span else "" for send in rounds.sends]
    messages = tuple(
        MessageCost(*what, parts, most, bytes[what], places[line])
        for what, parts, most, line in moves.found
        if what in bytes  # by holders, a message without values is not sent
    )
    busiest = int(np.maximum(weight.total.sent, weight.total.received).argmax())
    return Explanation(plan, proof, rank, load, source, messages, _traffic(weight, rank), busiest, figures(of))


_What = tuple[str, int, str, int]  # phase, round, direction, peer


def _bytes(weight: CallTraffic, rank: int) -> dict[_What, int]:
    found: dict[_What, int] = {}
    for messages in weight.messages:
        for direction, mine, peer in (("send", messages.src, messages.dst), ("receive", messages.dst, messages.src)):
            for row in np.flatnonzero(mine == rank).tolist():
                found[messages.phase, messages.number, direction, int(peer[row])] = int(messages.bytes[row])
    return found


class _Moves:
    """The messages of one rank, noted while the verifier plays: direction, parts, most contributors, line."""

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
    """Return ``[0, 1, 2, 5]`` as "0-2, 5"."""
    runs: list[list[int]] = []
    for part in parts:
        if runs and part == runs[-1][1] + 1:
            runs[-1][1] = part
        else:
            runs.append([part, part])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


MOST_MESSAGES = 40


def explanation_text(explanation: Explanation) -> str:
    """Return the scheme in a sentence, the messages of the rank by round, and the bytes at the end."""
    lines = [*_choice(explanation), *_heading(explanation), "", *_messages(explanation), "", *_totals(explanation)]
    if explanation.general:
        lines += ["", *symbolic_text(explanation.general), *(f"  {line}" for line in weights(explanation.plan))]
    if explanation.placement:
        lines += ["", *placement_text(explanation.placement)]
    return "\n".join(lines)


def _choice(explanation: Explanation) -> list[str]:
    """Return all candidates, the least bytes first; empty for a scheme that does not choose."""
    if not explanation.candidates:
        return []
    ordered = sorted(explanation.candidates.items(), key=lambda item: item[1].busiest_bytes)
    width = max(map(len, explanation.candidates))
    rows = [
        f"  {name:{width}}  {size_text(one.busiest_bytes):>10}  {sum(one.proof.rounds.values()):>6} steps"
        for name, one in ordered
    ]
    return [f"{explanation.choice} chooses; the busiest rank of each candidate moves", *rows, "the first of them:", ""]


def _heading(explanation: Explanation) -> list[str]:
    plan, proof, load = explanation.plan, explanation.proof, explanation.load
    whole = load.units * load.width * DTYPE_BYTES[load.dtype]
    aggregation = ", then ".join(dict.fromkeys(tier.aggregation.value for tier in plan.tiers))
    counts = zip(plan.tiers, plan.counts(proof.size), strict=True)
    tiers = [f"{tier.name} of {members}, {tier.communication}" for tier, members in counts]
    (first, number), *others = proof.rounds.items()
    rounds = ", ".join([f"{first} in {number} rounds", *(f"{name} in {more}" for name, more in others)])
    return [
        f"{plan.scheme}: {plan.doc}" if plan.doc else plan.scheme,
        *([f"tiers: {'; '.join(tiers)}"] if len(tiers) > 1 else []),
        *_compression(plan),
        f"{count(proof.size, 'rank')}, {count(proof.parts, 'part')}; {rounds}; {aggregation} aggregation",
        f"gradient: {load.units:,} units of {load.width} {load.dtype} ({size_text(whole)} dense); {explanation.source}",
        _likeness(explanation.figures),
    ]


def _compression(plan: Plan) -> list[str]:
    if not plan.is_lossy:
        return []
    guessed = guesses(plan)
    return [*sentences(plan), *([f"bytes are estimated: {', '.join(guessed)}"] if guessed else [])]


def _likeness(figures: Figures) -> str:
    return (
        f"a rank holds {_share(figures.density)} of the units and the sum {_share(figures.density_out)} "
        f"(densification {figures.densification:.3g}); ranks overlap by {_share(figures.overlap)}, "
        f"skewness {figures.skewness:.3g}"
    )


def _share(share: float) -> str:
    return f"{100 * share:.3g} %"


def _messages(explanation: Explanation) -> list[str]:
    messages = explanation.messages
    lines = [f"rank {explanation.rank}"]
    place = None
    for message in messages[:MOST_MESSAGES]:
        if (message.phase, message.round) != place:
            place = (message.phase, message.round)
            lines.append(f"  {message.phase}, step {message.round}")
        lines.append(_message(message))
    if len(messages) > MOST_MESSAGES:
        lines.append(f"  ... and {count(len(messages) - MOST_MESSAGES, 'more message')} (--json shows all)")
    return lines if messages else [*lines, "  has nothing to send or to receive"]


def _message(message: MessageCost) -> str:
    toward = "to  " if message.direction == "send" else "from"
    plural = "s" if message.parts != message.parts.split(",")[0].split("-")[0] else ""
    sums = f", sums of {message.contributors}" if message.contributors > 1 else ""
    return f"    {toward} rank {message.peer:<5} part{plural} {message.parts}{sums}: {size_text(message.bytes)}"


def _totals(explanation: Explanation) -> list[str]:
    lines = [f"{'bytes':10} {'sent':>12} {'received':>12}   busiest rank: {'sent':>12} {'received':>12}"]
    for phase, traffic in explanation.traffic.items():
        mine = f"{size_text(traffic.sent):>12} {size_text(traffic.received):>12}"
        lines.append(
            f"{phase:10} {mine}{'':17} {size_text(traffic.most_sent):>12} {size_text(traffic.most_received):>12}"
        )
    return [*lines, *_formats(explanation), *_comparison(explanation)]


def _formats(explanation: Explanation) -> list[str]:
    lines = []
    for phase, traffic in explanation.traffic.items():
        shares = [f"{name} {size_text(size)}" for name, size in traffic.formats.items() if size]
        if shares and phase != "total":
            lines.append(f"{phase}, bodies of all ranks by format: {', '.join(shares)}")
    return lines


def _comparison(explanation: Explanation) -> list[str]:
    figures, most = explanation.figures, explanation.busiest_bytes
    dense, bound = explanation.over(figures.dense_ring_bytes), explanation.over(figures.bound_bytes)
    lines = [f"the busiest rank is {explanation.busiest}, with {size_text(most)}:"]
    if dense is not None:
        lines.append(
            f"  {dense:.3g} times a dense ring all-reduce ({size_text(figures.dense_ring_bytes)} from every rank)"
        )
    if bound is not None:
        lines.append(
            f"  {bound:.3g} times the bandwidth bound for these units ({size_text(figures.bound_bytes)}, values alone)"
        )
    return lines
