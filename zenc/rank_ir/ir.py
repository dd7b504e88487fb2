"""Rank program: what one rank does in a call, as straight-line statements over numbered segments.

    RankProgram = rank size parts  SegmentSpec*  own: number*  select*  Pack  RankPhase+  Expand
    SegmentSpec = part origin ranks  block spread  sent_in?  final  code?   # what is known of a segment
    RankPhase   = kind name tier format code? one_shot carries  Statement*    # one phase of the plan
    Statement   = Exchange | Merge | Fill | Sparsify | Select | Encode | Decode | Deal | Choose | Agree | Split | Across
    Across      = RankProgram                                           # of this rank among its peers in other groups
    Message     = peer  number+                                         # segments, in the order in which they travel

The contract between a plan and everything that plays or counts it. Every segment is made once, by one statement, and
is named by its number. What is unknown before a call is how many slots each segment occupies, and nothing else.
``frees`` of a statement are the segments that no later statement uses, and that it uses or makes itself: each segment
of a program is freed once. What is never sent, and not part of the result, is not made.

A message carries, by its phase, segments (index and values), index sets alone, units with their owners, or rows: values
whose index both sides know. ``format`` is what the phase asks of an index. Of a segment with a ``code`` the values
travel encoded: its sender and its receivers hold the values that the bytes mean, and whoever forwards it forwards the
same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from zenc.plan.ir import PhaseKind
from zenc.scheme.compression import Code, Selection
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

    ``origin``: of what came in a one-shot phase the rank that held it when the phase began; of other segments that came
    their sender; of what this rank made, itself. Of blocks of ``block`` slots it surely has all or none, and every unit
    that was contributed makes it have ``spread`` slots at most, those that were filled up included. ``sent_in`` is the
    format of the phase that sends it first, None if none does. ``final``: it is part of the result. ``code``: how its
    values are encoded; it holds what the bytes mean.
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
        """Whether it surely has all slots."""
        return self.block == FULL


@dataclass(frozen=True, slots=True)
class Message:
    """The segments that go to or come from rank ``peer`` in one exchange, in their order on the wire."""

    peer: int
    segments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pack:
    """This rank's gradient becomes ``results``: a segment a part; by holders one of all units, part ``WHOLE``."""

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
    """``result`` is the sum of ``segments`` of one part, added in this order."""

    result: int
    segments: tuple[int, ...]
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Fill:
    """``result`` is ``segment`` with zeros in the slots that ``format`` fills up: all, or those of its blocks.

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
    """``result`` is ``segment`` without units that are all zero; of a ``marked`` one without those that are all -0."""

    result: int
    segment: int
    marked: bool = False
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Select:
    """``result`` is ``segment`` with the units that ``selection`` takes of it.

    ``keeps``: the others are for this rank to keep; of ranks that select of equal segments the lowest does.
    """

    result: int
    segment: int
    selection: tuple[Selection, ...]
    keeps: bool
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Encode:
    """``result`` is ``segment`` with the values that ``code`` makes of its own.

    ``keeps``: the loss is for this rank to keep. Of ranks that encode equal segments the lowest does; none does of what
    is in no result, and of exact integers, of which nothing is lost here.
    """

    result: int
    segment: int
    code: Code
    keeps: bool
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Deal:
    """The index set of ``segment``, of part ``WHOLE``, becomes ``results``, one for each part of a directory."""

    results: tuple[int, ...]
    segment: int
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Choose:
    """``result`` are the units in any of ``segments``, with the owner that is chosen for each.

    These are index sets of all ranks, in one part of a directory.
    """

    result: int
    segments: tuple[int, ...]
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Agree:
    """Each rank computes the owner of every unit from the index ``sets`` of all ranks, ascending.

    Or it hears them: ``sets`` are then the parts of a directory, with the owner of each unit in them.
    From here on the slots of all parts are known, and of every segment how many it occupies. ``peers`` are the ranks
    that messages come from and go to after it, with which it may be compared.
    """

    sets: tuple[int, ...]
    peers: tuple[int, ...]
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Split:
    """The values of ``segment``, of part ``WHOLE``, become ``results``, one a part: those of the part's units."""

    results: tuple[int, ...]
    segment: int
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Expand:
    """The complete ``segments``, one a part, become the returned tensor; by holders with the index ``sets``."""

    segments: tuple[int, ...]
    sets: tuple[int, ...] = ()
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Across:
    """``result`` is the sum of what each of ``ranks`` holds as ``segment``, by a ``program`` of theirs.

    They are ranks of one group of the outermost tier, which owns units by holders, and all hold sums of one part.
    In the program ``ranks[i]`` is rank i, the units of its tensor are the slots of that part, and what it packs is the
    segment. Its exchanges have the numbers of the plan's steps.
    """

    result: int
    segment: int
    ranks: tuple[int, ...]
    program: RankProgram
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Decode:
    """``result`` is ``segment``, whose values a later phase sends as they are, or in another code."""

    result: int
    segment: int
    frees: tuple[int, ...] = ()


Statement: TypeAlias = (
    Exchange | Merge | Fill | Sparsify | Select | Encode | Decode | Deal | Choose | Agree | Split | Across
)
AnyStatement: TypeAlias = Statement | Pack | Expand


def used_by(statement: AnyStatement) -> tuple[int, ...]:
    """The segments that ``statement`` works on; of an exchange those that it sends."""
    match statement:
        case Exchange(sends=sends):
            return tuple(segment for message in sends for segment in message.segments)
        case Merge(segments=segments) | Choose(segments=segments):
            return segments
        case (
            Fill(segment=segment)
            | Sparsify(segment=segment)
            | Select(segment=segment)
            | Encode(segment=segment)
            | Decode(segment=segment)
            | Deal(segment=segment)
            | Split(segment=segment)
            | Across(segment=segment)
        ):
            return (segment,)
        case Agree(sets=sets):
            return sets
        case Expand(segments, sets):
            return (*segments, *sets)
    return ()


def made_by(statement: AnyStatement) -> tuple[int, ...]:
    """The segments that ``statement`` makes; of an exchange those that it receives."""
    match statement:
        case Exchange(receives=receives):
            return tuple(segment for message in receives for segment in message.segments)
        case Pack(results=results) | Deal(results=results) | Split(results=results):
            return results
        case (
            Merge(result=result)
            | Fill(result=result)
            | Sparsify(result=result)
            | Select(result=result)
            | Encode(result=result)
            | Decode(result=result)
            | Choose(result=result)
            | Across(result=result)
        ):
            return (result,)
    return ()


@dataclass(frozen=True, slots=True)
class RankPhase:
    """One phase of the plan. ``tier`` is the place among the plan's tiers; ``name`` is in words, with its tier.

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

    ``select``: what is packed of the gradient; all of it where it is empty.
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

    @property
    def announces(self) -> bool:
        """Whether ranks tell each other what they hold before they send it: ``balanced by holders``."""
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
        """Whether a directory names the owners."""
        return any(phase.kind is PhaseKind.DIRECTORY for phase in self.phases)

    @property
    def statements(self) -> Iterator[AnyStatement]:
        """All of them, in their order."""
        yield self.pack
        for phase in self.phases:
            yield from phase.statements
        yield self.expand
