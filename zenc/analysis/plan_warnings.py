"""Warnings about plans: where another phase would take fewer bytes, and where values are rounded more than once."""

from __future__ import annotations

from collections.abc import Iterable

from zenc.errors import Diagnostic, Span
from zenc.plan.ir import PhaseKind, Plan
from zenc.plan.requirements import format_ranks
from zenc.scheme.compression import Linear
from zenc.scheme.compression_words import share_of, words_of
from zenc.scheme.model import Format
from zenc.verify.proof import Proof


def gain_warnings(plan: Plan, place: Span | None) -> tuple[Diagnostic, ...]:
    """Return warnings (``no-gain``) about a plan of one size, at the ``place`` of its scheme.

    A dense pull after a selection of units pays from a density of 1 / (2 * (n - 1)) on (TopKA2A, ICPP 2024), with
    indices of 4 bytes beside values of 4: below it the sum is still so sparse that gathering it takes less.
    """
    if plan.size is None or plan.size < 2 or len(plan.tiers) > 1:
        return ()
    (push,), (pull,) = plan.of(PhaseKind.PUSH), plan.of(PhaseKind.PULL)
    units = [one for one in push.select if not isinstance(one, Linear)]
    density, least = share_of(units), 1 / (2 * (plan.size - 1))
    if not density or pull.format is not Format.DENSE or push.format is Format.DENSE or density >= least:
        return ()
    message = f"the sums of {plan.size:,} ranks are sparse, and a dense pull sends all units"
    help = f"pull: auto sends less at a density below {least:.3g}, and here it is {density:g}"
    return (Diagnostic("no-gain", message, place, help=help, severity="warning"),)


def rounding_warnings(plan: Plan, proofs: Iterable[Proof]) -> tuple[Diagnostic, ...]:
    """Return a warning for each phase of ``plan`` that rounds again, in the proof among the most ranks."""
    largest = max(proofs, key=lambda proof: proof.size)
    found = []
    for phase in plan.phases:
        times = largest.hops.get(phase.name, 0)
        if times > 1 and phase.code is not None:
            message = f"the {phase.name} rounds to {words_of(phase.code)} at each hop: {times} times on the longest way"
            help = "where every contribution goes straight to the rank that sums it, values are rounded once"
            notes = (format_ranks(largest.size),)
            found.append(Diagnostic("rounded-again", message, phase.code_span or phase.span, notes, help, "warning"))
    return tuple(found)
