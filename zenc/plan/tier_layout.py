"""Layout of tiers: the ranks and the parts of each tier's groups among all ranks and parts.

    rank = ((... + r2) * n1 + r1) * n0 + r0           # r0 of n0 members of the innermost tier, as torchrun counts
    part = (p0 * P1 + p1) * P2 + p2 ...               # p0 of P0 parts of the innermost tier, which cuts first

A rank moves, in a tier, parts of what it owns in the tiers inside: part r0 of the innermost where that is cut, and all
of it where it is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from zenc.errors import Diagnostic
from zenc.plan.expressions import Ints
from zenc.plan.ir import Plan
from zenc.scheme.model import Partition


@dataclass(frozen=True, slots=True)
class TierLayout:
    """A tier among all ranks. Ranks, and what is said of each of them, are int64 [ranks].

    Its groups have ``members``, each of ``inner`` ranks; its parts are ``parts``, each of ``width`` of all parts.
    """

    name: str
    inner: int
    members: int
    parts: int
    width: int

    def member(self, ranks: Ints) -> Ints:
        """The place of each rank in its group: 0 to ``members - 1``."""
        return ranks // self.inner % self.members

    def group(self, ranks: Ints) -> Ints:
        """A number for the group of each rank; ranks of one group differ in their member alone."""
        return ranks // (self.inner * self.members) * self.inner + ranks % self.inner

    def peers(self, rank: int) -> range:
        """The ranks of the group of ``rank``."""
        first = rank - rank // self.inner % self.members * self.inner
        return range(first, first + self.members * self.inner, self.inner)


def levels_of(plan: Plan, size: int) -> tuple[TierLayout, ...]:
    """The tiers of ``plan`` among ``size`` ranks, which they must divide."""
    counts = plan.counts(size)
    cut = [tier.partition is Partition.PARALLELISM for tier in plan.tiers]
    parts = [count if is_cut else 1 for count, is_cut in zip(counts, cut, strict=True)]
    return tuple(
        TierLayout(tier.name, math.prod(counts[:k]), counts[k], parts[k], math.prod(parts[k + 1 :]))
        for k, tier in enumerate(plan.tiers)
    )


def first_part(levels: tuple[TierLayout, ...], ranks: Ints) -> Ints:
    """The first of the parts that each of ``ranks`` [k] owns in ``levels``, the inner tiers."""
    first = np.zeros_like(ranks)
    for level in levels:
        if level.parts > 1:
            first = first + level.member(ranks) * level.width
    return first


def indivisible(plan: Plan, size: int) -> Diagnostic | None:
    """Why ``size`` ranks do not fill the groups of the inner tiers; None where they do."""
    group = math.prod(tier.size or 1 for tier in plan.tiers[:-1])
    if size % group == 0:
        return None
    sizes = " x ".join(f"{tier.name}({tier.size})" for tier in plan.tiers[:-1])
    ranks = f"{size} ranks are" if size > 1 else "1 rank is"
    message = f"{ranks} not whole groups of {group}, which the tiers make: {sizes}"
    near = [n for n in (size // group * group, -(-size // group) * group) if n]
    help = f"use {' or '.join(map(str, near))} ranks, or other sizes of the tiers"
    return Diagnostic("tiers-do-not-divide", message, plan.tiers[0].span, help=help)
