"""A scheme that is right for some numbers of ranks and wrong for others: which, and the ``require`` that says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from zenc.errors import Diagnostic, VerificationError
from zenc.format_units import runs_text
from zenc.plan.requirements import format_ranks
from zenc.plurals import count
from zenc.verify.sizes.pattern import fitting

T = TypeVar("T")

_STOPS = "schedule-too-long"
"""The one error that more ranks only make worse, and that takes long to find."""


def survey(sizes: Sequence[int], prove: Callable[[int], T], require: bool = True) -> tuple[T, ...]:
    """The result of ``prove`` for each of ``sizes``.

    Raises VerificationError where it fails for one: with the counterexample of the smallest number of ranks above 1
    that fails, the numbers that do not, and, under ``require``, the statement that leaves the scheme to these.
    """
    proofs: dict[int, T] = {}
    wrong: dict[int, VerificationError] = {}
    for size in sizes:
        try:
            proofs[size] = prove(size)
        except VerificationError as error:
            wrong[size] = error
            if any(found.id == _STOPS for found in error.diagnostics):
                break
    if wrong:
        told = min((size for size in wrong if size > 1), default=1)
        raise VerificationError(
            _told(wrong[told].diagnostics, told, sorted(proofs), sorted([*proofs, *wrong]), require)
        )
    return tuple(proofs.values())


def _told(
    found: Sequence[Diagnostic], size: int, right: list[int], tried: list[int], require: bool
) -> Sequence[Diagnostic]:
    """``found`` among ``size`` ranks, with what to do where ``right`` are meant. Alone, a rank is right by idleness."""
    first, *others = found
    if len(tried) == 1:
        return found
    if right in ([], [1]):
        note = f"it is wrong for each of {tried[0]} to {tried[-1]} ranks; if it is for more, check it with --ranks"
        return [replace(first, notes=(*first.notes, note)), *others]
    notes = [*first.notes, f"of {tried[0]} to {tried[-1]} ranks it is right for {runs_text(right)}"]
    if others:
        notes.append(f"{count(len(others), 'more error')} {format_ranks(size)}: --ranks {size} shows all")
    condition = fitting(right, tried) if require else None
    help = first.help
    if condition:
        statement = f'require {condition.text} "{condition.words}"'
        help = f"if it is meant for these only, begin its push and its pull with: {statement}"
    return [replace(first, notes=tuple(notes), help=help)]
