"""Candidates of a choice that are right for a number of ranks."""

from __future__ import annotations

from zenc.errors import Diagnostic, VerificationError
from zenc.plan.lower import lower
from zenc.plan.requirements import LARGEST_SOUGHT, UnmetError, allowed, ensure_all
from zenc.plurals import count
from zenc.scheme.model import Candidate, Choice


def able_candidates(choice: Choice, size: int | None) -> tuple[tuple[Candidate, ...], tuple[Diagnostic, ...]]:
    """The candidates that run among ``size`` ranks, or among any number where it is None; warnings about the others.

    Raises VerificationError (``no-candidate``) where there is none.
    """
    reasons = {candidate.name: _reason(candidate, size) for candidate in choice.candidates}
    able = tuple(candidate for candidate in choice.candidates if reasons[candidate.name] is None)
    among = "any number of ranks" if size is None else count(size, "rank")
    if not able:
        message = f"no candidate of '{choice.name}' runs among {among}"
        notes = tuple(f"{name}: {reason}" for name, reason in reasons.items())
        help = "add one that runs on any number, such as balanced"
        raise VerificationError(Diagnostic("no-candidate", message, choice.span, notes, help))
    warnings = [
        Diagnostic(
            "candidate-left-out",
            f"candidate '{candidate.name}' does not run among {among}, and is left out",
            candidate.span,
            (str(reasons[candidate.name]),),
            severity="warning",
        )
        for candidate in choice.candidates
        if candidate not in able
    ]
    return able, tuple(warnings)


def _reason(candidate: Candidate, size: int | None) -> str | None:
    """Why ``size`` ranks, or any, can't run it; None where they can."""
    plan = lower(candidate.scheme, size)
    if size is None:
        return None if allowed(plan, range(1, LARGEST_SOUGHT + 1), most=1) else "what it requires holds for no number"
    try:
        ensure_all(plan, size)
    except UnmetError as error:
        return error.diagnostics[0].message
    return None
