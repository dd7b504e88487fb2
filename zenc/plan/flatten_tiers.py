"""The moves of a tier -> moves between ranks of the whole group, by rewriting expressions.

Inside a tier a schedule speaks of its own ``rank``, ``size`` and ``parts``. With ``inner`` ranks in each member:

    rank, size   become   rank / inner mod members, members               (the outermost: rank / inner, size / inner)
    to E         becomes  the rank of this rank's group whose place is E
    part E       becomes  the parts of all that are part E of what this rank owns in the tiers inside

so that nothing after this needs to know of tiers. Where ``zenc.plan.tier_layout`` counts, this module writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from zenc.language.schedule import (
    All,
    Binary,
    Block,
    Expression,
    Integer,
    Part,
    PartRange,
    Parts,
    Send,
    Statement,
    Variable,
    rebuilt,
)
from zenc.plan.expressions import LIMIT
from zenc.scheme.model import Aggregation, Partition, TierDeclaration
from zenc.scheme.substitute import Substitution

RANK, SIZE = Variable("rank"), Variable("size")
ZERO: Expression = Integer(0)
ONE: Expression = Integer(1)


@dataclass(frozen=True, slots=True)
class TierPlace:
    """A tier among others, as expressions over the whole group's ``rank`` and ``size``.

    ``owned`` is the first part of what a rank owns in the tiers inside, ``width`` the parts of all in a part of this
    tier, and ``group`` the first rank of a rank's group.
    """

    rank: Expression
    size: Expression
    parts: Expression
    one_shot: Expression
    inner: int
    group: Expression
    owned: Expression
    width: Expression

    def names(self) -> Substitution:
        """The names of the language, as the tier means them."""
        values = {"rank": self.rank, "size": self.size, "parts": self.parts, "one_shot": self.one_shot}
        return _Folding(values)


@dataclass(frozen=True)
class _Folding(Substitution):
    """Works out what has become a number: ``size - 2`` in a tier of 8 is 6."""

    def expression(self, e: Expression) -> Expression:
        found = super().expression(e)
        match found:
            case Binary(operator, Integer(left), Integer(right)) if operator in _FOLDED:
                value = _FOLDED[operator](left, right)
                return Integer(value, span=found.span) if 0 <= value < LIMIT else found
        return found


_FOLDED: dict[str, Callable[[int, int], int]] = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


def places(tiers: Sequence[TierDeclaration]) -> tuple[TierPlace, ...]:
    """The places of ``tiers``, inner to outer."""
    found: list[TierPlace] = []
    inner, owned = 1, ZERO
    for number, tier in enumerate(tiers):
        rank, size, group = _counting(inner, tier.size)
        cut = tier.partition is Partition.PARALLELISM
        parts = size if cut else ONE
        one_shot = Integer(int(tier.aggregation is Aggregation.ONE_SHOT))
        width = _width(tiers, number, inner)
        found.append(TierPlace(rank, size, parts, one_shot, inner, group, owned, width))
        owned = _add(owned, _times(rank, width)) if cut else owned
        inner *= tier.size or 1
    return tuple(found)


def _counting(inner: int, members: int | None) -> tuple[Expression, Expression, Expression]:
    """The rank in the tier, the size of the tier, and the first rank of the group."""
    if members is None:
        first = Binary("mod", RANK, Integer(inner)) if inner > 1 else ZERO
        return _over(RANK, inner), _over(SIZE, inner), first
    rank = Binary("mod", _over(RANK, inner), Integer(members))
    whole = _times(_over(RANK, inner * members), Integer(inner * members))
    first = _add(whole, Binary("mod", RANK, Integer(inner))) if inner > 1 else whole
    return rank, Integer(members), first


def _width(tiers: Sequence[TierDeclaration], number: int, inner: int) -> Expression:
    """The parts of all in one part of a tier: as many as the tiers outside it cut that in."""
    width = ONE
    for tier in tiers[number:]:
        if tier is not tiers[number] and tier.partition is Partition.PARALLELISM:
            width = _times(width, Integer(tier.size) if tier.size else _over(SIZE, inner))
        inner *= tier.size or 1
    return width


def rewritten(block: Block, place: TierPlace) -> Block:
    """``block`` of a tier as moves of the whole group."""
    return tuple(_statement(statement, place) for statement in place.names().block(block))


def _statement(statement: Statement, place: TierPlace) -> Statement:
    match statement:
        case Send(parts, to, origin):
            origin = None if origin is None else _global(origin, place)
            return replace(statement, parts=_parts(parts, place), to=_global(to, place), origin=origin)
    return rebuilt(statement, lambda child: _statement(child, place) if isinstance(child, Statement) else child)


def _global(member: Expression, place: TierPlace) -> Expression:
    """The rank whose place in this rank's group is ``member``."""
    return _add(place.group, _times(member, Integer(place.inner)))


def _parts(parts: Parts, place: TierPlace) -> Parts:
    match parts:
        case All():
            whole = _times(place.parts, place.width)
            return PartRange(place.owned, _minus_one(_add(place.owned, whole)), span=parts.span)
        case Part(index):
            first, last = _fine(index, place)
            return Part(first, span=parts.span) if place.width == ONE else PartRange(first, last, span=parts.span)
        case PartRange():
            return PartRange(_fine(parts.first, place)[0], _fine(parts.last, place)[1], span=parts.span)


def _fine(part: Expression, place: TierPlace) -> tuple[Expression, Expression]:
    """The first and the last of the parts of all that are ``part`` of a tier."""
    first = _add(place.owned, _times(part, place.width))
    if place.width == ONE:
        return first, first
    return first, _minus_one(_add(place.owned, _times(_add(part, ONE), place.width)))


# Expressions without what goes without saying ----------------------------------------------------------------------


def _over(value: Expression, divisor: int) -> Expression:
    return Binary("/", value, Integer(divisor)) if divisor > 1 else value


def _times(left: Expression, right: Expression) -> Expression:
    match left, right:
        case Integer(a), Integer(b):
            return Integer(a * b)
        case (Integer(1), kept) | (kept, Integer(1)):
            return kept
        case (Integer(0), _) | (_, Integer(0)):
            return Integer(0)
    return Binary("*", left, right)


def _add(left: Expression, right: Expression) -> Expression:
    match left, right:
        case Integer(a), Integer(b):
            return Integer(a + b)
        case (Integer(0), kept) | (kept, Integer(0)):
            return kept
    return Binary("+", left, right)


def _minus_one(value: Expression) -> Expression:
    match value:
        case Integer(number) if number > 0:
            return Integer(number - 1)
        case Binary("+", left, Integer(1)):
            return left
    return Binary("-", value, Integer(1))
