"""Schemes as data, once every name has a meaning (Zen, OSDI 2025, section 2: the four dimensions).

    Scheme          = name doc? parameters                  # parameters are bound to values here
                      tiers: TierDeclaration+               # inner to outer; without tiers there is one, named ""
                      mapping: Contiguous | Encoded | Permutation(seed, block) | HierarchicalHash(k, r1, r2, seed) |
                               Holders
                      unit: Unit                            # zero or not as a whole
                      across: Holders?                      # of the outermost tier, where that has owners of its own
                      announce: Communication?              # under Holders: the moves of index sets
                      feedback: Feedback? warmup: Warmup? transform: Transform?   # as in zenc.scheme.compression
    Choice          = name doc? parameters every margin patience trials Candidate+    # one of them runs, by tensor
    Candidate       = name Scheme                           # as written, with the values of its arguments
    TierDeclaration = name size?                            # the members of a group; None: all that are left
                      communication: Communication          # who talks to whom: push and pull blocks of moves
                      aggregation: incremental | one_shot   # where sums are made
                      partition: centralization | parallelism    # 1 part, or as many as members, times cut
                      push, pull: Format                    # what travels
                      push_code, pull_code: Code?           # how its values travel; None: as they are
                      select, merge, reselect: Selection*   # before the push, of its merges, before the pull; none: all

``zenc.scheme.resolve`` makes them of syntax trees.
"""

from __future__ import annotations

from collections.abc import Mapping as Mapping_
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias

from zenc.errors import Source, Span, Spanned
from zenc.language.schedule import Block
from zenc.scheme.compression import Code, Feedback, Selection, Transform, Warmup


class Aggregation(str, Enum):
    """The time at which segments of the same part are merged in a push (Zen, section 2)."""

    INCREMENTAL = "incremental"
    """Merge a segment at every hop."""
    ONE_SHOT = "one_shot"
    """Forward the collected segments as they are and merge at the end of the push."""


MOST_CUT = 1 << 16
"""Most parts of each rank."""


class Partition(str, Enum):
    """The number of parts that a tensor is cut into (Zen, section 2)."""

    CENTRALIZATION = "centralization"
    """A single part: the tensor travels whole."""
    PARALLELISM = "parallelism"
    """A part for each rank, each summed in a place of its own."""


class Unit(str, Enum):
    """The granularity of sparsity: a row or an element, present or absent as a whole, with one index."""

    AUTO = "auto"
    """The sparse dimensions of a COO tensor; single elements of a dense one."""
    ROW = "row"
    ELEMENT = "element"


class Format(str, Enum):
    """A wire format of a phase: ``zenc.wire.formats`` has the bytes of each."""

    DENSE = "dense"
    COO = "coo"
    BITMAP = "bitmap"
    ELIAS_FANO = "elias_fano"
    BLOCK_2 = "block(2)"
    BLOCK_4 = "block(4)"
    BLOCK_8 = "block(8)"
    BLOCK_16 = "block(16)"
    BLOCK_32 = "block(32)"
    BLOCK_64 = "block(64)"
    BLOCK_128 = "block(128)"
    BLOCK_256 = "block(256)"
    BLOCK_512 = "block(512)"
    BLOCK_1024 = "block(1024)"
    BLOCK_2048 = "block(2048)"
    BLOCK_4096 = "block(4096)"
    BLOCK_8192 = "block(8192)"
    BLOCK_16384 = "block(16384)"
    BLOCK_32768 = "block(32768)"
    BLOCK_65536 = "block(65536)"
    AUTO = "auto"
    """The smallest lossless format of each message, from its exact count."""

    @property
    def block(self) -> int:
        """The slots of a block, of ``block(k)``; 0 for all other formats."""
        return BLOCKS.get(self, 0)


BLOCKS = {format: int(format.value[6:-1]) for format in Format if format.value.startswith("block")}
"""Each ``block(k)`` with its k: OmniReduce's blocks (SIGCOMM 2021), which has 256 by default."""


@dataclass(frozen=True, slots=True)
class Contiguous:
    """Slot = unit: parts are ranges of the tensor, so a skewed gradient loads them unevenly."""


PERMUTED_BLOCKS = (8, 16, 32, 64)
"""Numbers of single elements that a permutation may keep together: bytes to a word of a bitmap."""


@dataclass(frozen=True, slots=True)
class Permutation:
    """Slot = a keyed bijection of the unit: parts are loaded evenly whatever the gradient. 64-bit seed.

    Of single elements blocks of ``block`` neighbours are permuted, one of PERMUTED_BLOCKS; None: as many as the number
    of elements and parts allows. Rows are permuted one by one.
    """

    seed: int
    block: int | None = None


@dataclass(frozen=True, slots=True)
class Holders:
    """An owner of each unit among the ranks that hold it, agreed on anew in every call.

    The ranks announce their units first. Parts are the units of one owner, so they differ from call to call; where the
    tier cuts them, unit i of an owner is in its part i mod ``cut``, and part p is of owner p // ``cut``.
    ``directory``: the number of ranks from which on a directory names the owners, each rank those of its share of the
    units; among fewer, or where it is None, all ranks hear all index sets.
    """

    directory: int | None = None


MOST_FUNCTIONS = 16
"""Most hash functions that choose the cells of units."""


@dataclass(frozen=True, slots=True)
class HierarchicalHash:
    """Part = a keyed hash of the unit, slot = its rank among the units of the part (Zen, OSDI 2025, Algorithm 1).

    ``k`` more hash functions choose the cells of the units of a call in a memory of ``r1`` cells for each of these
    units, and ``r2`` more for those that find none: totals over all parts. 64-bit seed.
    """

    k: int
    r1: float
    r2: float
    seed: int


@dataclass(frozen=True, slots=True)
class Encoded:
    """Slot = unit, and parts are ranges whose encoded sums were equally long in the last call of the name (OSCAR-HW).

    Every rank ends a call with the same bytes of each part, and so cuts the next one alike. The first is cut evenly.
    """


Mapping: TypeAlias = Contiguous | Permutation | HierarchicalHash | Holders | Encoded


@dataclass(frozen=True, slots=True)
class Communication:
    """The moves of a scheme; ``name`` as its author wrote it (``ring``, ``point_to_point then ring``, ``schedule``)."""

    name: str
    push: Block
    pull: Block
    push_span: Span | None = field(default=None, compare=False, repr=False)
    pull_span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TierDeclaration(Spanned):
    """The moves among the members of one level of a cluster, which are ranks or groups of ranks.

    ``code_spans``: the places that say the codes, of the push and of the pull. ``cut``: the parts for each member,
    under parallelism; not 1 in a scheme of one tier only.
    """

    name: str
    size: int | None
    communication: Communication
    aggregation: Aggregation
    partition: Partition
    push: Format
    pull: Format
    push_code: Code | None = None
    pull_code: Code | None = None
    select: tuple[Selection, ...] = ()
    reselect: tuple[Selection, ...] = ()
    merge: tuple[Selection, ...] = ()
    code_spans: tuple[Span | None, Span | None] = field(default=(None, None), compare=False, repr=False)
    cut: int = 1


@dataclass(frozen=True, slots=True)
class Scheme(Spanned):
    """A scheme, with one tier at least; ``tiers`` are inner to outer.

    ``across``: the mapping that cuts the parts of the inner tiers among the members of the outermost one; None where
    ``mapping`` does, which cuts the tensor for all of them.
    """

    name: str
    doc: str
    parameters: tuple[tuple[str, int | float], ...]
    tiers: tuple[TierDeclaration, ...]
    mapping: Mapping
    unit: Unit
    announce: Communication | None = None
    feedback: Feedback | None = None
    warmup: Warmup | None = None
    transform: Transform | None = None
    across: Holders | None = None
    sources: tuple[Source, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Candidate(Spanned):
    """A scheme to choose; ``name`` has the values of the arguments that it was given: ``zen(k = 3)``."""

    name: str
    scheme: Scheme


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a choice.

    Every ``every`` calls of a tensor the ranks look at its gradient. One candidate takes the place of another where it
    is expected to be better by the share ``margin`` at ``patience`` looks in a row. ``trials`` calls each are made with
    those that may be the best, and timed, before the choice is made; with 0 it is made by prediction alone.
    """

    every: int = 50
    margin: float = 0.08
    patience: int = 2
    trials: int = 3

    @property
    def unsound(self) -> str | None:
        """The name of a setting that is beyond its range; None where all can be."""
        values = ((name, getattr(self, name)) for name in SETTINGS)
        return next((name for name, value in values if not SETTINGS[name][0] <= value <= SETTINGS[name][1]), None)


SETTINGS: Mapping_[str, tuple[int, int]] = MappingProxyType(
    {"every": (1, 1_000_000), "margin": (0, 1), "patience": (1, 1000), "trials": (0, 100)}
)
"""The names of the settings of a choice, with the least and the greatest value of each; all are integers but margin."""


@dataclass(frozen=True, slots=True)
class Choice(Spanned):
    """Several schemes, of which the run time takes the cheapest for each tensor. The first runs until it has chosen."""

    name: str
    doc: str
    parameters: tuple[tuple[str, int | float], ...]
    settings: Settings
    candidates: tuple[Candidate, ...]
    sources: tuple[Source, ...] = field(default=(), compare=False, repr=False)
