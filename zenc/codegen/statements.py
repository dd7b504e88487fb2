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

from dataclasses import dataclass
from typing import TypeAlias

from zenc.codegen.cuts import Cut
from zenc.plan.ir import PhaseKind
from zenc.rank_ir.ir import FULL
from zenc.scheme.model import Format


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
    kind: PhaseKind
    format: Format
    statements: tuple[Statement, ...]


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


@dataclass(frozen=True, slots=True)
class HolderSequence:
    """Number k of the announce is the index set of rank k; later ones are of rows, with the slots of a cut each."""

    rank: int
    size: int
    cuts: tuple[Cut, ...]
    rows: tuple[int, ...]
    peers: tuple[int, ...]
    phases: tuple[Stretch, ...]
    complete: tuple[int, ...]
