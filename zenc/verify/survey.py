"""Numbers of ranks that a scheme is right for, where it is wrong for others, and the ``require`` that says so.

Condition = text x words x holds                        # in the language, in English, as a function
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from zenc.common.wording import count, runs_text
from zenc.errors import Diagnostic, VerificationError
from zenc.plan.requirements import format_ranks

MOST_TERMS = 6
"""Most numbers that a condition names one by one."""


class Condition(NamedTuple):
    """A condition on ``size``: ``text`` in the language, ``words`` in English, ``holds`` as a function."""

    text: str
    words: str
    holds: Callable[[int], bool]


def fitting(right: Sequence[int], tried: Sequence[int]) -> Condition | None:
    """Return a condition that holds for ``right`` and for no other of ``tried``; None where only a long list would.

    The first fitting one of: one number, a bound, powers of two, an even spacing, a range, a list. It is certain only
    for the numbers that were tried.
    """
    wanted = set(right)
    for condition in _conditions(sorted(wanted), sorted(tried)):
        if {size for size in tried if condition.holds(size)} == wanted:
            return condition
    return None


def _conditions(right: list[int], tried: list[int]) -> Iterator[Condition]:
    low, high = right[0], right[-1]
    if low == high:
        yield Condition(f"size == {low}", f"made for {low} ranks", lambda size: size == low)
    yield Condition(f"size > {low - 1}", f"made for {low} ranks or more", lambda size: size >= low)
    yield Condition(f"size < {high + 1}", f"made for at most {high} ranks", lambda size: size <= high)
    power, powers = "size & (size - 1) == 0", "the number of ranks is a power of two"
    yield Condition(power, powers, _is_power)
    yield Condition(f"size > {low - 1} and {power}", powers, lambda size: size >= low and _is_power(size))
    yield from (_spaced(step, low % step) for step in range(2, high - low + 1))
    both = f"size > {low - 1} and size < {high + 1}"
    yield Condition(both, f"made for {low} to {high} ranks", lambda size: low <= size <= high)
    yield from _lists(right, [size for size in tried if size not in right])


def _spaced(step: int, rest: int) -> Condition:
    more = f"{rest} more than " if rest else ""
    words = f"the number of ranks is {more}a multiple of {step}"
    return Condition(f"size mod {step} == {rest}", words, lambda size: size % step == rest)


def _lists(right: list[int], wrong: list[int]) -> Iterator[Condition]:
    if len(wrong) < len(right) and len(wrong) <= MOST_TERMS:
        text = " and ".join(f"size != {size}" for size in wrong)
        yield Condition(text, f"not made for {runs_text(wrong)} ranks", lambda size: size not in wrong)
    elif len(right) <= MOST_TERMS:
        text = " or ".join(f"size == {size}" for size in right)
        yield Condition(text, f"made for {runs_text(right)} ranks", lambda size: size in right)


def _is_power(size: int) -> bool:
    return size & (size - 1) == 0


T = TypeVar("T")

_STOPS = "schedule-too-long"
"""The one error that only gets worse with more ranks, and that takes long to find."""

_BY_CODE = "lossy-hop"
"""The one error that another code or other moves repair, and not another number of ranks."""


def survey(sizes: Sequence[int], prove: Callable[[int], T], require: bool = True) -> tuple[T, ...]:
    """Return the result of ``prove`` for each of ``sizes``.

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
    """Return ``found`` among ``size`` ranks, with help where ``right`` are meant; one rank is right by idleness."""
    first, *others = found
    if len(tried) == 1:
        return found
    if right in ([], [1]):
        note = f"it is wrong for each of {tried[0]} to {tried[-1]} ranks; if it is for more, check it with --ranks"
        return [replace(first, notes=(*first.notes, note)), *others]
    notes = [*first.notes, f"of {tried[0]} to {tried[-1]} ranks it is right for {runs_text(right)}"]
    if others:
        notes.append(f"{count(len(others), 'more error')} {format_ranks(size)}: --ranks {size} shows all")
    condition = fitting(right, tried) if require and first.id != _BY_CODE else None
    help = first.help
    if condition:
        statement = f'require {condition.text} "{condition.words}"'
        help = f"if it is meant for these only, begin its push and its pull with: {statement}"
    return [replace(first, notes=tuple(notes), help=help)]
