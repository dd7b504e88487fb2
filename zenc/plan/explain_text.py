"""An explanation as text for a terminal."""

from __future__ import annotations

from zenc.plan.explain import Explanation, MessageCost
from zenc.plan.formats import DTYPE_BYTES
from zenc.plan.model import Plan
from zenc.plan.placement_text import placement_text
from zenc.plan.symbolic_text import symbolic_text

MOST_MESSAGES = 40


def explanation_text(explanation: Explanation) -> str:
    """The scheme in a sentence, the messages of the rank by round, and the bytes in the end."""
    lines = [*_heading(explanation), "", *_messages(explanation), "", *_totals(explanation)]
    if explanation.general:
        lines += ["", *symbolic_text(explanation.general)]
    if explanation.placement:
        lines += ["", *placement_text(explanation.placement)]
    return "\n".join(lines)


def _heading(explanation: Explanation) -> list[str]:
    plan, proof, load = explanation.plan, explanation.proof, explanation.load
    whole = load.units * load.width * DTYPE_BYTES[load.dtype]
    return [
        f"{plan.scheme}: {plan.doc}" if plan.doc else plan.scheme,
        *_tiers(plan, proof.size),
        f"{proof.size} ranks, {proof.parts} part{'s' * (proof.parts != 1)}; "
        f"{_rounds(proof.rounds)}; {_aggregation(plan)} aggregation",
        f"gradient: {load.units:,} units of {load.width} {load.dtype} ({_size(whole)} dense), "
        f"{load.density:.4g} of the units on each rank, at random",
    ]


def _rounds(rounds: dict[str, int]) -> str:
    (first, count), *others = rounds.items()
    return ", ".join([f"{first} in {count} rounds", *(f"{name} in {more}" for name, more in others)])


def _aggregation(plan: Plan) -> str:
    return ", then ".join(dict.fromkeys(tier.aggregation.value for tier in plan.tiers))


def _tiers(plan: Plan, size: int) -> list[str]:
    if len(plan.tiers) == 1:
        return []
    counts = zip(plan.tiers, plan.counts(size), strict=True)
    return ["tiers: " + "; ".join(f"{tier.name} of {count}, {tier.communication}" for tier, count in counts)]


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
        lines.append(f"  ... and {len(messages) - MOST_MESSAGES} more messages (--json shows all)")
    return lines if messages else [*lines, "  has nothing to send or to receive"]


def _message(message: MessageCost) -> str:
    toward = "to  " if message.direction == "send" else "from"
    plural = "s" if message.parts != message.parts.split(",")[0].split("-")[0] else ""
    sums = f", sums of {message.contributors}" if message.contributors > 1 else ""
    return f"    {toward} rank {message.peer:<5} part{plural} {message.parts}{sums}: {_size(message.bytes)}"


def _totals(explanation: Explanation) -> list[str]:
    lines = [f"{'bytes':10} {'sent':>12} {'received':>12}   busiest rank: {'sent':>12} {'received':>12}"]
    for phase, traffic in explanation.traffic.items():
        mine = f"{_size(traffic.sent):>12} {_size(traffic.received):>12}"
        lines.append(f"{phase:10} {mine}{'':17} {_size(traffic.most_sent):>12} {_size(traffic.most_received):>12}")
    lines.append(f"a dense ring all-reduce sends {_size(explanation.dense_ring_bytes)} from every rank")
    return lines


def _size(count: int) -> str:
    if count < 10_000:
        return f"{count} B"
    for unit, scale in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if count < 1000 * scale or unit == "GB":
            return f"{count / scale:.4g} {unit}"
    raise AssertionError("every count has a unit")
