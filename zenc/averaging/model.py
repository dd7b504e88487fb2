"""Averagings as data: the ranks that average with each other, step by step; no gradients are summed.

    Averaging = name doc? parameters divisions: Division+ Require* sums: Candidate   # a step for each division
    Division  = EvenDivision(inner, outer?)               # ranks r with equal r mod inner and equal r / outer
              | ListedDivision(groups)                    # as its author lists them

In step t each group of division ``t mod period`` averages by the scheme ``sums``, and no rank hears of another group.
``zenc.averaging.resolve`` makes them of syntax trees; ``zenc.averaging.mixing`` proves what a period makes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import lcm
from typing import TypeAlias

from zenc.errors import Source, Span, Spanned
from zenc.language.schedule import Require
from zenc.scheme.model import Candidate

Group: TypeAlias = tuple[int, ...]
"""The ranks that average with each other, in ascending order."""


@dataclass(frozen=True, slots=True)
class EvenDivision(Spanned):
    """Groups of the ranks r that have r mod ``inner`` and r / ``outer``, rounded down, in common.

    Rows of m are inner 1 and outer m, columns of a square of m are inner m. ``outer`` None: the number of all ranks.
    """

    inner: int
    outer: int | None = None

    def groups(self, size: int) -> tuple[Group, ...]:
        """Return the groups among ``size`` ranks, by their first ranks."""
        outer = self.outer or size
        found: dict[tuple[int, int], list[int]] = {}
        for rank in range(size):
            found.setdefault((rank // outer, rank % self.inner), []).append(rank)
        return tuple(map(tuple, found.values()))


@dataclass(frozen=True, slots=True)
class ListedDivision(Spanned):
    """Groups that are written down: every rank of 0 to the greatest is in one of them."""

    listed: tuple[Group, ...]

    @property
    def size(self) -> int:
        """The number of ranks that are listed."""
        return sum(map(len, self.listed))

    def groups(self, size: int) -> tuple[Group, ...]:
        """Return the groups, by their first ranks; ``size`` is the number of ranks listed."""
        return tuple(sorted(tuple(sorted(group)) for group in self.listed))


Division: TypeAlias = EvenDivision | ListedDivision


@dataclass(frozen=True, slots=True)
class Averaging(Spanned):
    """A period of divisions, and the scheme that sums in each group."""

    name: str
    doc: str
    parameters: tuple[tuple[str, int | float], ...]
    divisions: tuple[Division, ...]
    sums: Candidate
    alternate: Span | None = field(default=None, compare=False, repr=False)
    """The place of the word ``alternate``."""
    sources: tuple[Source, ...] = field(default=(), compare=False, repr=False)
    requirements: tuple[Require, ...] = ()
    """Requirements on ``size``, the number of ranks."""

    @property
    def period(self) -> int:
        """The number of steps after which the groups come again."""
        return len(self.divisions)

    @property
    def listed_size(self) -> int | None:
        """The number of ranks that divisions list; None without such a division, where any number may do."""
        return next((each.size for each in self.divisions if isinstance(each, ListedDivision)), None)

    @property
    def grain(self) -> int:
        """The least number of ranks that all even divisions cut in whole groups."""
        even = [each for each in self.divisions if isinstance(each, EvenDivision)]
        return lcm(*(number for each in even for number in (each.inner, each.outer or 1)))

    def groups(self, size: int) -> tuple[tuple[Group, ...], ...]:
        """Return the groups of each step of a period among ``size`` ranks."""
        return tuple(division.groups(size) for division in self.divisions)


def division_text(division: Division) -> str:
    """Return ``rows(4)``, ``columns(4)``, ``strided(2, 4)``, ``everyone`` or ``groups [0, 1] [2, 3]``."""
    match division:
        case ListedDivision(listed):
            return " ".join(["groups", *(f"[{', '.join(map(str, group))}]" for group in listed)])
        case EvenDivision(1, None):
            return "everyone"
        case EvenDivision(1, outer):
            return f"rows({outer})"
        case EvenDivision(inner, None):
            return f"columns({inner})"
        case EvenDivision(inner, int(outer)):
            return f"strided({outer // inner}, {inner})"
    raise AssertionError(division)
