"""An explanation as text for a terminal."""

from __future__ import annotations

from zenc.analysis.explanation import Explanation, MessageCost
from zenc.analysis.placement import placement_text
from zenc.analysis.scaling import symbolic_text
from zenc.format_units import size_text
from zenc.gradients.index_sets import Figures
from zenc.plan.ir import Plan
from zenc.plurals import count
from zenc.wire.constants import DTYPE_BYTES

MOST_MESSAGES = 40


def explanation_text(explanation: Explanation) -> str:
    """The scheme in a sentence, the messages of the rank by round, and the bytes in the end."""
    lines = [*_choice(explanation), *_heading(explanation), "", *_messages(explanation), "", *_totals(explanation)]
    if explanation.general:
        lines += ["", *symbolic_text(explanation.general)]
    if explanation.placement:
        lines += ["", *placement_text(explanation.placement)]
    return "\n".join(lines)


def _choice(explanation: Explanation) -> list[str]:
    """All candidates, the least bytes first; empty for a scheme that chooses from none."""
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
    (first, number), *others = proof.rounds.items()
    rounds = ", ".join([f"{first} in {number} rounds", *(f"{name} in {more}" for name, more in others)])
    return [
        f"{plan.scheme}: {plan.doc}" if plan.doc else plan.scheme,
        *_tiers(plan, proof.size),
        f"{count(proof.size, 'rank')}, {count(proof.parts, 'part')}; {rounds}; {aggregation} aggregation",
        f"gradient: {load.units:,} units of {load.width} {load.dtype} ({size_text(whole)} dense); {explanation.source}",
        _likeness(explanation.figures),
    ]


def _tiers(plan: Plan, size: int) -> list[str]:
    if len(plan.tiers) == 1:
        return []
    counts = zip(plan.tiers, plan.counts(size), strict=True)
    return ["tiers: " + "; ".join(f"{tier.name} of {count}, {tier.communication}" for tier, count in counts)]


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
