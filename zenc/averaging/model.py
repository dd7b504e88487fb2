"""Averagings as data: the ranks that average with each other, step by step; no gradients are summed.

    Averaging = name doc? parameters divisions: Division+ Require* sums: Candidate   # an average for each division
                Shuffled? Every Runs During? Outer?       # of which ranks, when, of which parameters, how late, and how
    Division  = EvenDivision(inner, outer?)               # ranks r with equal r mod inner and equal r / outer
              | ListedDivision(groups)                    # as its author lists them

    Outer     = Sgd | Nesterov

In average t each group of division ``t mod period`` averages by the scheme ``sums``; no rank hears of another group.
Where ranks are shuffled, the divisions come again in each of several orders of the ranks, which are one period.
Averages come after some steps of the ranks' own optimizers, each of the next run of parameters where there are several.
``zenc.averaging.resolve`` makes them of syntax trees; ``zenc.averaging.mixing`` proves what a period makes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm
from typing import Any, TypeAlias

from zenc.errors import Source, Span, Spanned
from zenc.language.schedule import Require
from zenc.scheme.compression import DEFAULT_SEED, MOST_SEED, within
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
class Every:
    """An average of each parameter after each ``steps``-th step (local SGD; DiLoCo, arXiv 2311.08105)."""

    steps: int = within(1, 1_000_000_000)


@dataclass(frozen=True, slots=True)
class Shuffled:
    """The divisions in ``count`` orders of the ranks, one after another: their own, and others drawn by ``seed``.

    Ranks that are never in one group of a grid are in one of some order (random shuffle of DS-Sync, arXiv 2007.03298).
    """

    count: int = within(1, 64)
    seed: int = within(0, MOST_SEED, default=DEFAULT_SEED)

    def orders(self, size: int) -> list[list[int]]:
        """Return ``count`` orders of ``size`` ranks, the first of which is their own; each is a list of ranks."""
        generators = (random.Random(self.seed << 6 | number) for number in range(1, self.count))
        drawn = ([(generator.random(), rank) for rank in range(size)] for generator in generators)
        return [list(range(size)), *([rank for _, rank in sorted(each)] for each in drawn)]


@dataclass(frozen=True, slots=True)
class Runs:
    """The parameters in ``count`` runs of about equally many values, averaged in turn (arXiv 2501.18512)."""

    count: int = within(1, 1_000_000)


@dataclass(frozen=True, slots=True)
class During:
    """A sum that takes ``steps`` steps, after which a rank keeps the share ``keep`` of its own (arXiv 2501.18512)."""

    steps: int = within(0, 1_000_000_000)
    keep: float = within(0, 1.0, default=0.5)


@dataclass(frozen=True, slots=True)
class Sgd:
    """An outer optimizer: parameters before the steps, less ``lr`` times the mean of what the steps took away."""

    lr: float = within(0.0, 1000.0, default=1.0)


@dataclass(frozen=True, slots=True)
class Nesterov:
    """An outer optimizer: SGD with Nesterov's momentum, as ``torch.optim.SGD(lr, momentum, nesterov=True)`` has it."""

    lr: float = within(0.0, 1000.0, default=0.7)
    momentum: float = within(0, 1.0, default=0.9)


Outer: TypeAlias = Sgd | Nesterov
WORDS: Mapping[str, Mapping[str, type[Any]]] = {
    "ranks": {"shuffled": Shuffled},
    "when": {"every": Every},
    "fragments": {"runs": Runs},
    "overlap": {"during": During},
    "outer": {"sgd": Sgd, "nesterov": Nesterov},
}
"""The words of each key of an averaging but ``sums``; their fields are the arguments, as those of compression."""


@dataclass(frozen=True, slots=True)
class Averaging(Spanned):
    """A period of divisions, the scheme that sums in each group, and the words of when it does."""

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
    ranks: Shuffled = Shuffled(1)
    when: Every = Every(1)
    fragments: Runs = Runs(1)
    overlap: During | None = None
    outer: Outer | None = None

    @property
    def interval(self) -> int:
        """The number of steps from one average to the next, which is of the next run of parameters."""
        return self.when.steps // self.fragments.count

    @property
    def words(self) -> Mapping[str, Any]:
        """The words that its author says beside the groups and the scheme, by key; usual ones are left out."""
        usual = (None, Shuffled(1), Every(1), Runs(1))
        return {key: getattr(self, key) for key in WORDS if getattr(self, key) not in usual}

    @property
    def period(self) -> int:
        """The number of averages after which the groups come again."""
        return len(self.steps)

    @property
    def steps(self) -> tuple[Division, ...]:
        """The division of each average of a period, whatever the order of the ranks."""
        return self.divisions * self.ranks.count

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
        own = [division.groups(size) for division in self.divisions]
        return tuple(_in_order(groups, order) for order in self.ranks.orders(size) for groups in own)


def _in_order(groups: tuple[Group, ...], order: Sequence[int]) -> tuple[Group, ...]:
    """Return groups of the ranks that stand in ``order`` where those of ``groups`` do among all."""
    return tuple(sorted(tuple(sorted(order[rank] for rank in group)) for group in groups))


def timing_text(averaging: Averaging) -> str:
    """Return ``an average after every 25 steps, of 4 runs of the parameters in turn``, and how late it may be."""
    turns = f", of {averaging.fragments.count} runs of the parameters in turn" if averaging.fragments.count > 1 else ""
    late, orders = averaging.overlap, averaging.ranks.count
    orders_text = f", in {orders} orders of the ranks in turn" if orders > 1 else ""
    waits = f", due {late.steps} later; ranks keep {late.keep:g} of their own" if late else ""
    when = f"every {averaging.interval:,} steps" if averaging.interval > 1 else "each step"
    return f"an average after {when}{turns}{orders_text}{waits}"


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
