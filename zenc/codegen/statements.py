"""What sequences are made of: transfers and what is made of what came, over numbered segments.

    Sequence  = rank size parts  segments: Segment*  own: number*  phases: Stretch+  complete: number*
    Segment   = part ranks block spread asked?              # asked: what it is sent in first; None: it is not sent
    Stretch   = kind format  statements: Statement*         # one phase of the plan
    Statement = Transfer number sends: Parcel* receives: Parcel*       # one step
              | Merge result segments+                  # their sum, added in this order
              | Fill result segment format               # with +0, to all slots or to whole blocks
              | Sparsify result segment                  # without the units that are all zero
    Parcel    = peer announced counted  segments: number+

Every segment is made once. A parcel is ``announced`` by a control message, which says that both ranks make the same
call, and is ``counted`` when that brings the counts of its segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from zenc.scheme.model import Format

Kind = Literal["announce", "push", "pull"]


@dataclass(frozen=True, slots=True)
class Parcel:
    peer: int
    segments: tuple[int, ...]
    announced: bool
    counted: bool


@dataclass(frozen=True, slots=True)
class Transfer:
    number: int
    sends: tuple[Parcel, ...]
    receives: tuple[Parcel, ...]


@dataclass(frozen=True, slots=True)
class Merge:
    result: int
    segments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fill:
    result: int
    segment: int
    format: Format


@dataclass(frozen=True, slots=True)
class Sparsify:
    result: int
    segment: int


Statement: TypeAlias = Transfer | Merge | Fill | Sparsify


@dataclass(frozen=True, slots=True)
class Stretch:
    kind: Kind
    format: Format
    statements: tuple[Statement, ...]


FULL = 1 << 20
"""Longer than any block: all slots are occupied."""


@dataclass(frozen=True, slots=True)
class Segment:
    """What ``ranks`` ranks contributed of a part.

    Of blocks of ``block`` slots it surely has all or none, and every unit that was contributed makes it have ``spread``
    slots at most, those that were filled up included.
    """

    part: int
    ranks: int
    block: int
    spread: int
    asked: Format | None = None

    @property
    def full(self) -> bool:
        """Whether it surely has all slots."""
        return self.block == FULL


@dataclass(frozen=True, slots=True)
class Sequence:
    """``own[part]`` is what this rank contributes, filled up if the first phase says so, ``complete[part]`` the sum.

    Segments 0 to ``parts - 1`` are its gradient as it is.
    """

    rank: int
    size: int
    parts: int
    segments: tuple[Segment, ...]
    own: tuple[int, ...]
    phases: tuple[Stretch, ...]
    complete: tuple[int, ...]


def needed_only(phases: Iterable[Stretch], needed: set[int]) -> tuple[Stretch, ...]:
    """``phases`` without what neither a message nor one of ``needed`` needs; all segments that stay are added to it."""
    kept: list[Stretch] = []
    for phase in reversed(tuple(phases)):
        statements = [statement for statement in reversed(phase.statements) if _is_needed(statement, needed)]
        kept.append(replace(phase, statements=tuple(reversed(statements))))
    return tuple(reversed(kept))


def _is_needed(statement: Statement, needed: set[int]) -> bool:
    """Whether ``statement`` is; if it is, so are the segments that it works on."""
    match statement:
        case Transfer(_, sends, receives):
            needed |= {segment for parcel in (*sends, *receives) for segment in parcel.segments}
            return True
        case Merge(result, segments):
            needed |= set(segments) if result in needed else set()
        case Fill(result, segment) | Sparsify(result, segment):
            needed |= {segment} if result in needed else set()
    return statement.result in needed


def renumbered(segments: Iterable[int], numbers: Mapping[int, int]) -> tuple[int, ...]:
    """Other numbers for ``segments``."""
    return tuple(numbers[segment] for segment in segments)


def with_numbers(phases: Iterable[Stretch], numbers: Mapping[int, int]) -> tuple[Stretch, ...]:
    """``phases`` with other numbers for their segments."""
    return tuple(replace(p, statements=tuple(_numbered(s, numbers) for s in p.statements)) for p in phases)


def _numbered(statement: Statement, numbers: Mapping[int, int]) -> Statement:
    match statement:
        case Transfer(number, sends, receives):
            renamed = [
                tuple(replace(parcel, segments=renumbered(parcel.segments, numbers)) for parcel in parcels)
                for parcels in (sends, receives)
            ]
            return Transfer(number, *renamed)
        case Merge(result, segments):
            return Merge(numbers[result], renumbered(segments, numbers))
        case Fill(result, segment, format):
            return Fill(numbers[result], numbers[segment], format)
        case Sparsify(result, segment):
            return Sparsify(numbers[result], numbers[segment])
