"""Warnings of phases that round values more than once on their way."""

from __future__ import annotations

from collections.abc import Iterable

from zenc.errors import Diagnostic
from zenc.plan.ir import Plan
from zenc.plan.requirements import format_ranks
from zenc.scheme.compression_words import words_of
from zenc.verify.proof import Proof


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
