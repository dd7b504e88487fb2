"""Rank program: one rank's part of a call, as straight-line statements over numbered segments.

    RankProgram = rank size parts  SegmentSpec*  own: number*  select*  Pack  RankPhase+  Expand
    SegmentSpec = part origin ranks  block spread  sent_in?  final  code?   # the known properties of a segment
    RankPhase   = kind name tier format code? one_shot carries  Statement*    # one phase of the plan
    Statement   = Exchange | Merge | Fill | Sparsify | Select | Encode | Decode | Deal | Choose | Agree | Split | Across
    Across      = RankProgram                                           # of this rank among its peers in other groups
    Message     = peer  number+                                         # segments, in the order in which they travel

The contract between a plan and everything that plays or counts it. Every segment is made once, by one statement, and
is named by its number. Only the number of slots that each segment occupies is unknown before a call.
``frees`` of a statement are the segments that no later statement uses, and that it uses or makes itself: each segment
of a program is freed once. A segment that is never sent, and not part of the result, is not made.

A message carries, by its phase, segments (index and values), index sets alone, units with their owners, or rows: values
whose index both sides know. ``format`` is the phase's format of an index. The values of a segment with a ``code``
travel encoded: its sender and its receivers hold the values that the bytes mean, and a rank that forwards it forwards
the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from zenc.plan.ir import PhaseKind
from zenc.scheme.compression import Code, Selection, Transform
from zenc.scheme.model import Format

WHOLE = -1
"""The part of a segment of all units."""
FULL = 1 << 20
"""Slots of a block that is longer than any: the whole part."""


class Carries(Enum):
    """The content of a phase's messages, for each segment."""

    SEGMENTS = "segments"  # index and values
    SETS = "sets"  # index alone
    OWNERS = "owners"  # index, and the owner of each unit
    ROWS = "rows"  # values alone


@dataclass(frozen=True, slots=True)
class SegmentSpec:
    """The contributions of ``ranks`` to ``part``, held together.

    ``origin``: the rank that held a segment received in a one-shot phase when that began; the sender of any other
    segment received; this rank for its own. The segment surely has all or no slots of each block of ``block``, and each
    contributed unit adds at most ``spread`` slots to it, with those filled up. ``sent_in`` is the format of the phase
    that sends it first, None if no phase does. ``final``: it is part of the result. ``code``: the code of its values;
    it holds the values that the bytes mean.
    """

    part: int
    origin: int
    ranks: tuple[int, ...]
    block: int = 1
    spread: int = 1
    sent_in: Format | None = None
    final: bool = False
    code: Code | None = None

    @property
    def full(self) -> bool:
        """Return whether the segment surely has all slots."""
        return self.block == FULL


@dataclass(frozen=True, slots=True)
class Message:
    """The segments that go to or come from rank ``peer`` in one exchange, in their order on the wire."""

    peer: int
    segments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pack:
    """The packing of this rank's gradient into ``results``: a segment a part, or by holders one of part ``WHOLE``."""

    results: tuple[int, ...]
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Exchange:
    """The messages of one step, one a peer and direction. All are posted before any is awaited.

    ``number`` is that of the step in the plan, the same on all ranks; a rank without messages in a step has no
    statement for it.
    """

    number: int
    sends: tuple[Message, ...]
    receives: tuple[Message, ...]
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge: ``result`` is the sum of ``segments`` of one part, added in this order."""

    result: int
    segments: tuple[int, ...]
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Fill:
    """A fill: ``result`` is ``segment`` with zeros in the slots that ``format`` fills up: all, or those of its blocks.

    ``marks``: they are -0, and zeros of ``segment`` +0. A sum is -0 where all of its terms are, and so tells whether
    any rank has the unit.
    """

    result: int
    segment: int
    format: Format
    marks: bool = False
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Sparsify:
    """A removal: ``result`` is ``segment`` without all-zero units, or, if ``marked``, without units that are all -0."""

    result: int
    segment: int
    marked: bool = False
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Select:
    """A selection: ``result`` is ``segment`` with the units that ``selection`` takes of it.

    ``keeps``: this rank keeps the other units; among ranks that select from equal segments the lowest does.
    ``merged``: it is that of a merge in this phase, and otherwise the one before the next phase.
    """

    result: int
    segment: int
    selection: tuple[Selection, ...]
    keeps: bool
    merged: bool = False
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Encode:
    """An encoding: ``result`` is ``segment`` with the values that ``code`` makes of its own.

    ``keeps``: this rank keeps the loss. Among ranks that encode equal segments the lowest does; no rank keeps the loss
    of a segment in no result, or of exact integers, which lose nothing here.
    """

    result: int
    segment: int
    code: Code
    keeps: bool
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Deal:
    """A dealing: the index set ``segment``, part ``WHOLE``, becomes ``results``, one for each part of a directory."""

    results: tuple[int, ...]
    segment: int
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Choose:
    """A choice of owners: ``result`` are the units in any of ``segments``, with the owner chosen for each.

    ``segments`` are index sets of all ranks, in one part of a directory.
    """

    result: int
    segments: tuple[int, ...]
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Agree:
    """An agreement: each rank computes the owner of every unit from the index ``sets`` of all ranks, ascending.

    With a directory it receives the owners: ``sets`` are then its parts, with the owner of each unit in them. From here
    on the slots of all parts are known, and the number that every segment occupies. ``peers`` are the ranks of later
    messages, with which the agreement may be compared.
    """

    sets: tuple[int, ...]
    peers: tuple[int, ...]
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Split:
    """A split: the values of ``segment``, part ``WHOLE``, become ``results``, one a part: those of the part's units."""

    results: tuple[int, ...]
    segment: int
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Expand:
    """The expansion of the complete ``segments``, one a part, to the returned tensor.

    By holders with index ``sets``.
    """

    segments: tuple[int, ...]
    sets: tuple[int, ...] = ()
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Across:
    """A sum across groups: ``result`` is the sum of the ``segment`` of each of ``ranks``, by their own ``program``.

    They are ranks of one group of the outermost tier, which owns units by holders, and all hold sums of one part. In
    the program ``ranks[i]`` is rank i, the units of its tensor are the slots of that part, and it packs the segment.
    Its exchanges have the numbers of the plan's steps.
    """

    result: int
    segment: int
    ranks: tuple[int, ...]
    program: RankProgram
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Decode:
    """A decoding: ``result`` is ``segment``, whose values a later phase sends as they are, or in another code."""

    result: int
    segment: int
    frees: tuple[int, ...] = ()


Statement: TypeAlias = (
    Exchange | Merge | Fill | Sparsify | Select | Encode | Decode | Deal | Choose | Agree | Split | Across
)
AnyStatement: TypeAlias = Statement | Pack | Expand


def used_by(statement: AnyStatement) -> tuple[int, ...]:
    """Return the segments that ``statement`` uses; for an exchange, those that it sends."""
    if isinstance(statement, Exchange):
        return tuple(segment for message in statement.sends for segment in message.segments)
    if (one := getattr(statement, "segment", None)) is not None:
        return (one,)
    return *getattr(statement, "segments", ()), *getattr(statement, "sets", ())


def made_by(statement: AnyStatement) -> tuple[int, ...]:
    """Return the segments that ``statement`` makes; for an exchange, those that it receives."""
    if isinstance(statement, Exchange):
        return tuple(segment for message in statement.receives for segment in message.segments)
    one = getattr(statement, "result", None)
    several: tuple[int, ...] = getattr(statement, "results", ())
    return several if one is None else (one,)


@dataclass(frozen=True, slots=True)
class RankPhase:
    """A phase of the plan; ``tier`` is the place among the plan's tiers, and ``name`` is in words, with its tier.

    ``code``: that of the segments that its messages carry; None where values travel as they are.
    """

    kind: PhaseKind
    name: str
    tier: int
    format: Format
    one_shot: bool
    carries: Carries
    statements: tuple[Statement, ...]
    code: Code | None = None

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The exchanges among its statements: one for each step in which this rank has messages."""
        return tuple(statement for statement in self.statements if isinstance(statement, Exchange))


@dataclass(frozen=True, slots=True)
class RankProgram:
    """The program of ``rank`` among ``size``. ``own[part]`` is its contribution, filled up if the first phase asks.

    ``select``: the selections of the gradient that is packed, or of its coefficients under ``transform``; all of it
    where it is empty. ``early``: the number of
    steps by which the pull may begin before the push has ended, on all ranks: what it sends then is complete.
    """

    rank: int
    size: int
    parts: int
    segments: tuple[SegmentSpec, ...]
    own: tuple[int, ...]
    pack: Pack
    phases: tuple[RankPhase, ...]
    expand: Expand
    select: tuple[Selection, ...] = ()
    transform: Transform | None = None
    early: int = 0

    @property
    def announces(self) -> bool:
        """Return whether ranks announce their units before they send values: ``balanced by holders``."""
        return self.across is None and any(phase.kind is PhaseKind.ANNOUNCE for phase in self.phases)

    @property
    def across(self) -> Across | None:
        """The statement that sums among groups, where their tier has owners of its own."""
        every = (statement for phase in self.phases for statement in phase.statements)
        return next((statement for statement in every if isinstance(statement, Across)), None)

    @property
    def kinds(self) -> tuple[PhaseKind, ...]:
        """The kinds of its phases, and of those of a program inside, each once."""
        inside = self.across.program.kinds if self.across else ()
        return tuple(dict.fromkeys((*(phase.kind for phase in self.phases), *inside)))

    @property
    def exchanges(self) -> int:
        """The number of its exchanges, and of those of a program inside."""
        inside = self.across.program.exchanges if self.across else 0
        return inside + sum(len(phase.exchanges) for phase in self.phases)

    @property
    def by_directory(self) -> bool:
        """Return whether a directory names the owners."""
        return any(phase.kind is PhaseKind.DIRECTORY for phase in self.phases)

    @property
    def statements(self) -> Iterator[AnyStatement]:
        """The statements of all phases, with pack and expand, in order."""
        yield self.pack
        for phase in self.phases:
            yield from phase.statements
        yield self.expand
