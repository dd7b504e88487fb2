"""Layout of tiers: the ranks and the parts of each tier's groups among all ranks and parts, as numbers and in moves.

    rank = ((... + r2) * n1 + r1) * n0 + r0           # r0 of n0 members of the innermost tier, as torchrun counts
    part = (p0 * P1 + p1) * P2 + p2 ...               # p0 of P0 parts of the innermost tier, which cuts first

A rank moves, in a tier, parts of what it owns in the tiers inside: part r0 of the innermost where that is cut, and all
of it where it is not.

Inside a tier a schedule speaks of its own ``rank``, ``size`` and ``parts``. With ``inner`` ranks in each member its
moves become moves between ranks of the whole group, by rewriting expressions, so that nothing after this needs to know
of tiers:

    rank, size   become   rank / inner mod members, members               (the outermost: rank / inner, size / inner)
    to E         becomes  the rank of this rank's group whose place is E
    part E       becomes  the parts of all that are part E of what this rank owns in the tiers inside
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from zenc.errors import Diagnostic
from zenc.language import schedule as s
from zenc.language.schedule import Substitution
from zenc.plan.expressions import LIMIT, Ints
from zenc.plan.ir import Plan
from zenc.scheme.model import Aggregation, Partition, TierDeclaration


@dataclass(frozen=True, slots=True)
class TierLayout:
    """A tier among all ranks. Ranks, and values for each of them, are int64 [ranks].

    Its groups have ``members``, each of ``inner`` ranks; its parts are ``parts``, each of ``width`` of all parts.
    """

    name: str
    inner: int
    members: int
    parts: int
    width: int

    def member(self, ranks: Ints) -> Ints:
        """Return the place of each rank in its group [ranks]: 0 to ``members - 1``."""
        return ranks // self.inner % self.members

    def group(self, ranks: Ints) -> Ints:
        """Return a number for the group of each rank [ranks]; ranks of one group differ in their member alone."""
        return ranks // (self.inner * self.members) * self.inner + ranks % self.inner

    def peers(self, rank: int) -> range:
        """Return the ranks of the group of ``rank``."""
        first = rank - rank // self.inner % self.members * self.inner
        return range(first, first + self.members * self.inner, self.inner)


def levels_of(plan: Plan, size: int) -> tuple[TierLayout, ...]:
    """Return the tiers of ``plan`` among ``size`` ranks, which they must divide."""
    counts = plan.counts(size)
    cut = [tier.partition is Partition.PARALLELISM for tier in plan.tiers]
    parts = [n * tier.cut if is_cut else 1 for n, tier, is_cut in zip(counts, plan.tiers, cut, strict=True)]
    return tuple(
        TierLayout(tier.name, math.prod(counts[:k]), counts[k], parts[k], math.prod(parts[k + 1 :]))
        for k, tier in enumerate(plan.tiers)
    )


def first_part(levels: tuple[TierLayout, ...], ranks: Ints) -> Ints:
    """Return the first of the parts that each of ``ranks`` [k] owns in ``levels``, the inner tiers."""
    first = np.zeros_like(ranks)
    for level in levels:
        if level.parts > 1:
            first = first + level.member(ranks) * level.width
    return first


def indivisible(plan: Plan, size: int) -> Diagnostic | None:
    """Return why ``size`` ranks do not fill the groups of the inner tiers; None where they do."""
    group = math.prod(tier.size or 1 for tier in plan.tiers[:-1])
    if size % group == 0:
        return None
    sizes = " x ".join(f"{tier.name}({tier.size})" for tier in plan.tiers[:-1])
    ranks = f"{size} ranks are" if size > 1 else "1 rank is"
    message = f"{ranks} not whole groups of {group}, which the tiers make: {sizes}"
    near = [n for n in (size // group * group, -(-size // group) * group) if n]
    help = f"use {' or '.join(map(str, near))} ranks, or other sizes of the tiers"
    return Diagnostic("tiers-do-not-divide", message, plan.tiers[0].span, help=help)


RANK, SIZE, PARTS = s.Variable("rank"), s.Variable("size"), s.Variable("parts")
ZERO: s.Expression = s.Integer(0)
ONE: s.Expression = s.Integer(1)


@dataclass(frozen=True, slots=True)
class TierPlace:
    """A tier among others, as expressions over the whole group's ``rank`` and ``size``.

    ``owned`` is the first of the parts that a rank owns in the tiers inside, ``width`` the parts of all in a part of
    this tier, and ``group`` the first rank of a rank's group.
    """

    rank: s.Expression
    size: s.Expression
    parts: s.Expression
    one_shot: s.Expression
    inner: int
    group: s.Expression
    owned: s.Expression
    width: s.Expression

    def names(self) -> Substitution:
        """Return the substitution of the language's names by their meaning in the tier."""
        values = {"rank": self.rank, "size": self.size, "parts": self.parts, "one_shot": self.one_shot}
        return _Folding(values)


@dataclass(frozen=True)
class _Folding(Substitution):
    """A substitution that evaluates constant expressions: ``size - 2`` in a tier of 8 is 6."""

    def expression(self, e: s.Expression) -> s.Expression:
        found = super().expression(e)
        match found:
            case s.Binary(operator, s.Integer(left), s.Integer(right)) if operator in _FOLDED:
                value = _FOLDED[operator](left, right)
                return s.Integer(value, span=found.span) if 0 <= value < LIMIT else found
        return found


_FOLDED: dict[str, Callable[[int, int], int]] = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


def places(tiers: Sequence[TierDeclaration]) -> tuple[TierPlace, ...]:
    """Return the places of ``tiers``, inner to outer."""
    found: list[TierPlace] = []
    inner, owned = 1, ZERO
    for number, tier in enumerate(tiers):
        rank, size, group = _counting(inner, tier.size)
        cut = tier.partition is Partition.PARALLELISM
        parts = size if cut else ONE
        one_shot = s.Integer(int(tier.aggregation is Aggregation.ONE_SHOT))
        width = _width(tiers, number, inner)
        found.append(TierPlace(rank, size, parts, one_shot, inner, group, owned, width))
        owned = _add(owned, _times(rank, width)) if cut else owned
        inner *= tier.size or 1
    return tuple(found)


def _counting(inner: int, members: int | None) -> tuple[s.Expression, s.Expression, s.Expression]:
    """Return the rank in the tier, the size of the tier, and the first rank of the group."""
    if members is None:
        first = s.Binary("mod", RANK, s.Integer(inner)) if inner > 1 else ZERO
        return _over(RANK, inner), _over(SIZE, inner), first
    rank = s.Binary("mod", _over(RANK, inner), s.Integer(members))
    whole = _times(_over(RANK, inner * members), s.Integer(inner * members))
    first = _add(whole, s.Binary("mod", RANK, s.Integer(inner))) if inner > 1 else whole
    return rank, s.Integer(members), first


def _width(tiers: Sequence[TierDeclaration], number: int, inner: int) -> s.Expression:
    """Return the number of whole-tensor parts in one part of a tier: as many as the tiers outside it cut it in."""
    width = ONE
    for tier in tiers[number:]:
        if tier is not tiers[number] and tier.partition is Partition.PARALLELISM:
            width = _times(width, s.Integer(tier.size) if tier.size else _over(SIZE, inner))
        inner *= tier.size or 1
    return width


def rewritten(block: s.Block, place: TierPlace) -> s.Block:
    """Return ``block`` of a tier as moves of the whole group."""
    return tuple(_statement(statement, place) for statement in place.names().block(block))


def _statement(statement: s.Statement, place: TierPlace) -> s.Statement:
    match statement:
        case s.Send(parts, to, origin):
            origin = None if origin is None else _global(origin, place)
            return replace(statement, parts=_parts(parts, place), to=_global(to, place), origin=origin)
        case s.SpanningTree(parts, branches):
            moved = tuple(
                replace(each, source=_global(each.source, place), to=tuple(_global(to, place) for to in each.to))
                for each in branches
            )
            return replace(statement, parts=_parts(parts, place), branches=moved)
    return s.rebuilt(statement, lambda child: _statement(child, place) if isinstance(child, s.Statement) else child)


def _global(member: s.Expression, place: TierPlace) -> s.Expression:
    return _add(place.group, _times(member, s.Integer(place.inner)))


def _parts(parts: s.Parts, place: TierPlace) -> s.Parts:
    match parts:
        case s.All():
            whole = _times(place.parts, place.width)
            return s.PartRange(place.owned, _minus_one(_add(place.owned, whole)), span=parts.span)
        case s.Part(index):
            first, last = _fine(index, place)
            return s.Part(first, span=parts.span) if place.width == ONE else s.PartRange(first, last, span=parts.span)
        case s.PartRange():
            return s.PartRange(_fine(parts.first, place)[0], _fine(parts.last, place)[1], span=parts.span)


def _fine(part: s.Expression, place: TierPlace) -> tuple[s.Expression, s.Expression]:
    """Return the first and the last whole-tensor part in ``part`` of a tier."""
    first = _add(place.owned, _times(part, place.width))
    if place.width == ONE:
        return first, first
    return first, _minus_one(_add(place.owned, _times(_add(part, ONE), place.width)))


# Expressions without what goes without saying ----------------------------------------------------------------------


def _over(value: s.Expression, divisor: int) -> s.Expression:
    return s.Binary("/", value, s.Integer(divisor)) if divisor > 1 else value


def _times(left: s.Expression, right: s.Expression) -> s.Expression:
    match left, right:
        case s.Integer(a), s.Integer(b):
            return s.Integer(a * b)
        case (s.Integer(1), kept) | (kept, s.Integer(1)):
            return kept
        case (s.Integer(0), _) | (_, s.Integer(0)):
            return s.Integer(0)
    return s.Binary("*", left, right)


def _add(left: s.Expression, right: s.Expression) -> s.Expression:
    match left, right:
        case s.Integer(a), s.Integer(b):
            return s.Integer(a + b)
        case (s.Integer(0), kept) | (kept, s.Integer(0)):
            return kept
    return s.Binary("+", left, right)


def _minus_one(value: s.Expression) -> s.Expression:
    match value:
        case s.Integer(number) if number > 0:
            return s.Integer(number - 1)
        case s.Binary("+", left, s.Integer(1)):
            return left
    return s.Binary("-", value, s.Integer(1))
