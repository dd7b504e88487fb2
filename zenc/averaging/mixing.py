"""Mixing matrices: the exact weights of ranks' values in each other after some steps of averages.

A step in which groups average is a matrix: row r has 1/m at each of the m ranks of r's group, and 0 elsewhere. It is
symmetric, and its rows and columns sum to 1, so a step keeps the mean over all ranks. Steps one after the other are the
product of their matrices, the first rightmost. A period makes the mean where that product has 1/n everywhere. Entries
are rational numbers, as integers over one denominator: nothing is rounded, so nothing is nearly the mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from math import lcm, prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from zenc.averaging.model import Averaging, Group
from zenc.common.wording import count, ranks_text
from zenc.errors import Diagnostic, VerificationError
from zenc.plan.expressions import scope_of
from zenc.plan.requirements import UnmetError, ensure, format_ranks, with_allowed

Steps: TypeAlias = Sequence[Sequence[Group]]
"""The groups of each step, every rank in one of each."""
MOST_RANKS = 4096
"""Most ranks among which a period is proved; a matrix of more would take gigabytes."""
MOST_TRIED = 64
"""Most ranks up to which suitable numbers are sought."""
_GREATEST = 2**62
"""The denominator up to which numerators, which are no greater, are added as int64; beyond it as Python's integers."""


@dataclass(frozen=True, slots=True, eq=False)
class MixingMatrix:
    """The product of some steps among ``size`` ranks.

    Ranks of one group of the last step have one row; those of one group of the first step have one column. So
    ``numerators[i, j]`` over ``denominator`` is the weight of a rank of group j of the first step in each rank of group
    i of the last.
    """

    size: int
    first: tuple[Group, ...]
    last: tuple[Group, ...]
    numerators: npt.NDArray[Any]
    denominator: int

    def weight(self, rank: int, of: int) -> Fraction:
        """Return the share of rank ``of``'s first value in the last one of ``rank``."""
        i, j = (next(i for i, g in enumerate(at) if r in g) for at, r in ((self.last, rank), (self.first, of)))
        return Fraction(int(self.numerators[i, j]), self.denominator)

    @property
    def is_mean(self) -> bool:
        """Return whether all ranks end with the mean over all."""
        mean, rest = divmod(self.denominator, self.size)
        return not rest and bool((self.numerators == mean).all())

    @property
    def furthest(self) -> tuple[int, int]:
        """A rank, and another one with the least weight in it: 0, where it is not heard of at all."""
        i, j = np.unravel_index(int(self.numerators.argmin()), self.numerators.shape)
        return self.last[int(i)][0], self.first[int(j)][0]


def mixing_matrix(steps: Steps, size: int) -> MixingMatrix:
    """Return the product of ``steps``, at least one, among ``size`` ranks."""
    first, *others = (tuple(groups) for groups in steps)
    shares = [lcm(*map(len, groups)) for groups in (first, *others)]
    type = np.int64 if prod(shares) < _GREATEST else object
    product = np.diag(np.array([shares[0] // len(group) for group in first], dtype=type))
    last = first
    for groups, share in zip(others, shares[1:], strict=True):
        row_of = np.empty(size, dtype=np.intp)
        for row, group in enumerate(last):
            row_of[list(group)] = row
        product = np.stack([product[row_of[list(group)]].sum(axis=0) * (share // len(group)) for group in groups])
        last = groups
    return MixingMatrix(size, first, last, product, prod(shares))


@dataclass(frozen=True, slots=True)
class PeriodProof:
    """The result of ``prove_period``: after the ``steps`` all ``size`` ranks have the mean of their first values.

    ``from_any_step``: also after as many steps that begin within a period.
    """

    size: int
    steps: tuple[tuple[Group, ...], ...]
    from_any_step: bool

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """The sizes of groups, each once, the least first."""
        return tuple(sorted({len(group) for groups in self.steps for group in groups}))


def prove_period(averaging: Averaging, size: int) -> PeriodProof:
    """Prove that a period of ``averaging`` makes the mean among ``size`` ranks.

    Raises VerificationError: ``not-the-mean``, with a rank's value instead, ``unmet-requirement``, and ``bad-size``.
    """
    if size > MOST_RANKS:
        message = f"a period is proved for {MOST_RANKS:,} ranks at most, not {size:,}"
        raise VerificationError(Diagnostic("bad-size", message, averaging.alternate))
    try:
        _ensure_meant(averaging, size)
    except UnmetError as error:
        raise with_allowed(error, size, lambda sizes: meant(averaging, sizes)[:1]) from None
    steps = averaging.groups(size)
    first = steps[: len(averaging.divisions)]  # other orders of the ranks make what this one makes, their ranks renamed
    if not (product := mixing_matrix(first, size)).is_mean:
        raise VerificationError(_counterexample(averaging, product))
    turned = (first[start:] + first[:start] for start in range(1, len(first)))
    whole = len(steps) > len(first)  # steps from anywhere have all divisions of some order in a row
    return PeriodProof(size, steps, whole or all(mixing_matrix(each, size).is_mean for each in turned))


def meant(averaging: Averaging, sizes: Iterable[int]) -> list[int]:
    """Return the ``sizes`` that meet the requirements of ``averaging``."""
    found = []
    for size in sizes:
        with suppress(UnmetError):
            _ensure_meant(averaging, size)
            found.append(size)
    return found


def _ensure_meant(averaging: Averaging, size: int) -> None:
    for requirement in averaging.requirements:
        ensure(requirement, scope_of(size, 1, False))


def sizes_with_the_mean(averaging: Averaging) -> list[int]:
    """Return the first numbers of ranks among which a period makes the mean, and no step is one group by chance."""
    tried = range(averaging.grain, MOST_TRIED + 1, averaging.grain) if averaging.listed_size is None else ()
    steps = ((size, averaging.groups(size)[: len(averaging.divisions)]) for size in tried)
    apart = ((size, groups) for size, groups in steps if all(len(each) > 1 for each in groups))
    return list(islice((size for size, groups in apart if mixing_matrix(groups, size).is_mean), 2))


def _counterexample(averaging: Averaging, product: MixingMatrix) -> Diagnostic:
    rank, of = product.furthest
    after = f"after the {count(len(averaging.divisions), 'step')} of a period"
    weight, mean = product.weight(rank, of), f"the mean has 1/{product.size}"
    heard = f"{weight} of the value of rank {of}" if weight else f"nothing of the value of rank {of}"
    row = _row_text([product.weight(rank, each) for each in range(product.size)])
    notes = (f"rank {rank} has {row}", format_ranks(product.size))
    help = "rows(4) and columns(4) make the mean of 16 ranks; a division too few never does"
    if right := sizes_with_the_mean(averaging):
        among = " and ".join(map(str, right))
        help = (
            f'it makes the mean among {among} ranks; if it is meant for these, say so: require size == {right[0]} "..."'
        )
    return Diagnostic("not-the-mean", f"{after} rank {rank} has {heard}, and {mean}", averaging.alternate, notes, help)


def _row_text(row: Sequence[Fraction]) -> str:
    """Return ``1/2 of each of ranks 0 and 1, 0 of each of ranks 2 to 3``."""
    ranks: dict[Fraction, list[int]] = {}
    for rank, weight in enumerate(row):
        ranks.setdefault(weight, []).append(rank)
    told = sorted(ranks.items(), key=lambda item: -item[0])
    return ", ".join(f"{weight} of {'each of ' if len(of) > 1 else ''}{ranks_text(tuple(of))}" for weight, of in told)
