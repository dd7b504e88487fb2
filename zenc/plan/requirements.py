"""Requirements of a schedule on the number of ranks; the numbers that meet them, and a choice's candidates that do.

A ``require`` may stand anywhere. Those before the first step and the first loop of a phase are checked before any move
is made, so that the numbers of ranks that a scheme allows are known without playing it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from zenc.common.wording import count
from zenc.errors import Diagnostic, VerificationError
from zenc.language.formatter import expression_text
from zenc.language.schedule import Block, If, Let, Require, SpanningTree, Trees, names_in
from zenc.plan.expressions import EvaluationError, Scope, condition, evaluate, scope_of
from zenc.plan.ir import Plan
from zenc.plan.lower import lower
from zenc.plan.tier_layout import indivisible
from zenc.scheme.model import Candidate, Choice

LARGEST_SOUGHT = 2048
"""Greatest number of ranks that is tried, to name the numbers that a scheme allows."""


def format_ranks(size: int) -> str:
    """Return the number of ranks of a counterexample, in words."""
    return f"among {size} ranks" if size > 1 else "for 1 rank alone"


class UnmetError(VerificationError):
    """An error of a ``require`` that does not hold."""


def ensure(statement: Require, scope: Scope) -> None:
    """Raise UnmetError (``unmet-requirement``) unless ``statement`` holds for every rank of ``scope``."""
    holds = condition(statement.condition, scope)
    if not holds.all():
        message = statement.message or "what this schedule requires does not hold"
        place = statement.condition.span or statement.span
        failing = scope.where(~holds)
        values = {name: failing.values[name] for name in dict.fromkeys(names_in(statement.condition))}
        first = {name: value[0] if isinstance(value, np.ndarray) else value for name, value in values.items()}
        known = " and ".join(f"{name} is {value}" for name, value in first.items())
        why = f"'{expression_text(statement.condition)}' does not hold" + (f" where {known}" if known else "")
        raise UnmetError(Diagnostic("unmet-requirement", message, place, (why,)))


def ensure_all(plan: Plan, size: int) -> None:
    """Raise UnmetError unless ``size`` ranks meet the requirements before the first step and loop of each phase.

    The error names the numbers of ranks near ``size`` that meet them.
    """
    try:
        _ensure_all(plan, size)
    except UnmetError as error:
        raise with_allowed(error, size, lambda sizes: allowed(plan, sizes, most=1)) from None


def with_allowed(error: UnmetError, size: int, first: Callable[[Iterable[int]], list[int]]) -> UnmetError:
    """Return ``error`` of ``size`` ranks with the nearest allowed numbers.

    ``first`` returns the first allowed of some.
    """
    found = error.diagnostics[0]
    near = first(range(size - 1, 0, -1)) + first(range(size + 1, LARGEST_SOUGHT + 1))
    notes, help = (*found.notes, format_ranks(size)), f"it holds for {' and for '.join(map(str, near))} ranks"
    if not near:
        help = f"no number of ranks up to {LARGEST_SOUGHT:,} meets it: look at the parameters"
    return UnmetError(replace(found, notes=notes, help=found.help or help))


def allowed(plan: Plan, sizes: Iterable[int], most: int | None = None) -> list[int]:
    """Return the ``sizes`` that meet the requirements of ``plan``, or the first ``most`` of them."""
    found: list[int] = []
    for size in sizes:
        if len(found) == most:
            break
        try:
            _ensure_all(plan, size)
        except UnmetError:
            continue
        found.append(size)
    return found


def nearest_allowed(plan: Plan, size: int) -> int:
    """Return the number of ranks nearest to ``size`` that meets the requirements of ``plan``; ``size`` if none does."""
    for step in range(LARGEST_SOUGHT):
        if found := allowed(plan, (n for n in (size - step, size + step) if n > 0), most=1):
            return found[0]
    return size


def _ensure_all(plan: Plan, size: int) -> None:
    unequal = indivisible(plan, size)
    if unequal:
        raise UnmetError(unequal)
    for phase in plan.phases:
        if not plan.plays(phase, size):
            continue
        scope = scope_of(size, plan.parts_in(phase, size), phase.one_shot)
        try:
            _ensure_leading(phase.block, scope)
        except EvaluationError:
            continue  # told with its phase when the moves are made


def _ensure_leading(block: Block, scope: Scope) -> None:
    for statement in block:
        match statement:
            case Let(name, value):
                scope = scope.bind(name, evaluate(value, scope))
            case Require():
                ensure(statement, scope)
            case If(test, then, otherwise):
                holds = condition(test, scope)
                for mask, branch in ((holds, then), (~holds, otherwise)):
                    if mask.any():
                        _ensure_leading(branch, scope.where(mask))
            case Trees(_, body):
                _ensure_leading(tuple(each for each in body if not isinstance(each, SpanningTree)), scope)
                return
            case _:
                return


def able_candidates(choice: Choice, size: int | None) -> tuple[tuple[Candidate, ...], tuple[Diagnostic, ...]]:
    """Return the candidates that run among ``size`` ranks, or any number for None, and warnings about the others.

    Raises VerificationError (``no-candidate``) if no candidate runs.
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
    plan = lower(candidate.scheme, size)
    if size is None:
        return None if allowed(plan, range(1, LARGEST_SOUGHT + 1), most=1) else "what it requires holds for no number"
    try:
        ensure_all(plan, size)
    except UnmetError as error:
        return error.diagnostics[0].message
    return None
