"""Conditions on ``size``, as a ``require`` has them: the simplest that holds for some numbers of ranks and no others.

Condition = text x words x holds                        # in the language, in English, as a function
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from zenc.format_units import runs_text

MOST_TERMS = 6
"""Numbers that a condition names one by one."""


class Condition(NamedTuple):
    """A condition on ``size``: ``text`` in the language, ``words`` in English, ``holds`` as a function."""

    text: str
    words: str
    holds: Callable[[int], bool]


def fitting(right: Sequence[int], tried: Sequence[int]) -> Condition | None:
    """A condition that holds for ``right`` and for no other of ``tried``; None where only a long list would.

    Of those that fit, the first: one number, a bound, powers of two, an even spacing, a range, a list. What fits the
    numbers that were tried says nothing sure of others.
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
