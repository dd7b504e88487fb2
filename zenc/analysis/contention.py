"""Warnings about steps in which the network holds the ranks up, with what could be done about it."""

from __future__ import annotations

from zenc.analysis.cut_bound import CutBound, bound_on
from zenc.analysis.expected_bytes import ExpectedBytes
from zenc.analysis.link_load import LinkLoads, StepLoad
from zenc.errors import Diagnostic
from zenc.plan.requirements import format_ranks
from zenc.plan.unroll import Rounds


def contention(loads: LinkLoads, rounds: Rounds, expected: ExpectedBytes) -> list[Diagnostic]:
    """A warning for every statement with a contended step: the worst of them."""
    worst: dict[int, StepLoad] = {}
    for step in loads.steps:
        if step.contended and (step.line not in worst or step.seconds > worst[step.line].seconds):
            worst[step.line] = step
    return [_crowded(loads, rounds, expected, step) for step in worst.values()]


def _crowded(loads: LinkLoads, rounds: Rounds, expected: ExpectedBytes, step: StepLoad) -> Diagnostic:
    times = step.seconds / step.port_seconds if step.port_seconds else float("inf")
    message = (
        f"{step.moves} moves share the link {loads.name(step.link)}, which is busy {times:.3g} times as long as "
        f"the ranks' own links ({step.phase}, step {step.number})"
    )
    over = bound_on(loads, step.link, expected)
    notes = (*([over.text()] if over else []), format_ranks(rounds.size))
    help = _advice(over, tiered=len(expected.plan.tiers) > 1)
    return Diagnostic("contended-link", message, rounds.sends[step.line].span, notes, help, "warning")


def _advice(over: CutBound | None, tiered: bool) -> str:
    """What to do about a crowded link."""
    if over and over.near:
        return "it carries little more than it must in any scheme: only a wider link would help"
    less = "move less between its two sides, or sum on each side first"
    return f"{less}: in a tier whose groups lie on one side each" if tiered else f"{less}: tiers do that"
