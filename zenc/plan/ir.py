"""The plan: a scheme lowered to phases of statements, as data that a reader can execute by hand.

    Plan  = scheme doc parameters
            size?                                 # the number of ranks it is pinned to; None serves any number
            mapping unit                          # as in zenc.scheme.model
            tiers: Tier+                          # inner to outer; a scheme without tiers has one, named ""
            across: Holders?                      # of the outermost tier, where that has owners of its own
            phases: Phase+                        # pushes, inner first; pulls, outer first; under Holders an announce
                                                  # and a directory before the push that they are for
    Tier  = name size? communication partition aggregation depth cut # size: ranks in a group; None: the rest
            feedback? warmup? transform?          # as in zenc.scheme.compression
    Phase = kind Block Format Tier                # the moves, in the language of zenc.language.schedule
            code? select: Selection*              # the code of values; the units contributed, or passed on of a sum
            merge: Selection*                     # of a push: the units kept of each sum that is made in a step

The meaning of a plan, which every target and every proof keeps to. The tensor is cut in ``parts``: the product over the
tiers of 1 (centralization) or of the tier's size times its cut (parallelism). At first every rank holds, of every part,
its own contribution. Phases run one after another, and so do the steps of a phase; the moves of a step run together and
see the data from before it.

    push  A move copies the sender's piece of a part. It is joined to the receiver's pieces: under incremental
          aggregation of the phase's tier merged at once, in the order of the ranks that held the pieces (the
          receiver's own among them); under one-shot aggregation kept apart, and merged when the phase ends, in the
          order of the ranks that held the pieces when it began.
    pull  A move copies a complete part, which replaces the receiver's pieces of it.

At the end every rank holds every part, complete.

    announce Before all that, under Holders, a push of one part and one-shot aggregation, in which a contribution is the
    set of units that a rank holds, without values. Every rank ends it with the sets of all ranks, and so knows all
    parts: part p are the units that rank p // cut owns, one of those that hold them, ascending, and dealt in turns;
    zenc.scheme.model.Holders. No slot of such a part is empty on all ranks, and the holders of each slot are known
    before it comes, so that values travel alone.

    directory  Where there is one, among as many ranks as the mapping says or more, index sets are announced in as many
              parts as there are ranks, and part q of all of them comes to its owner, as the values of a push do. That
              rank chooses owners for the units in it, by the sets it has heard of alone. The pull of the schedule then
              brings these units and their owners to all ranks. So every rank knows all parts; who holds which slot of
              a part it learns in the push, where values travel with an index among the slots of their part.

    across    Where the outermost tier has owners of its own, ``mapping`` cuts the tensor in the parts of the tiers
              inside, and these travel whole in their phases. The announce comes after their pushes: a contribution is
              the set of units in the sum that a rank then holds of its part, and the ranks of a group of the outermost
              tier hear those of each other. Parts of the tensor are numbered as ever: the units of inner part q that
              member p owns are part p of the outermost tier in q.

Tiers nest: a tier of size g makes groups of g ranks, and each of these counts as one rank to the next tier. The moves
of a plan are between ranks of the whole group all the same, and carry parts of the whole tensor.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field, replace
from enum import Enum

from zenc.errors import Span
from zenc.language.schedule import Block
from zenc.scheme.compression import (
    Code,
    Decay,
    Feedback,
    Fixed,
    LowRank,
    Remembering,
    Rounded,
    Selection,
    Transform,
    Vote,
    Warmup,
)
from zenc.scheme.model import Aggregation, Encoded, Format, Holders, Mapping, Partition, Unit


class PhaseKind(str, Enum):
    """The kind of a phase, by what its moves carry; the values are keys of bytes, rounds and statistics."""

    ANNOUNCE = "announce"
    DIRECTORY = "directory"
    PUSH = "push"
    PULL = "pull"

    @property
    def completes(self) -> bool:
        """Return whether moves carry complete parts, which replace the receiver's pieces."""
        return self in (PhaseKind.DIRECTORY, PhaseKind.PULL)


FACTOR = "factor"
"""The name of the kept factors of a matrix of low rank, which are smaller than the tensor."""
VALUE_KINDS = (PhaseKind.PUSH, PhaseKind.PULL)
"""Kinds of phases whose moves carry values."""
SET_KINDS = (PhaseKind.ANNOUNCE, PhaseKind.DIRECTORY)
"""Kinds of phases whose moves carry index sets, and the owners known from them."""


@dataclass(frozen=True, slots=True)
class Tier:
    """A tier of a plan.

    ``size`` members of the tier below make a group, None for the outermost, which takes all of them.

    ``depth`` is its place among the tiers of a plan: 0 for the innermost. ``cut``: the parts for each member under
    parallelism, 1 where there are several tiers.
    """

    name: str
    size: int | None
    communication: str
    partition: Partition
    aggregation: Aggregation
    depth: int = 0
    span: Span | None = field(default=None, compare=False, repr=False)
    cut: int = 1

    @property
    def one_shot(self) -> bool:
        """Return whether received pieces are kept apart until the push ends, and then merged at once."""
        return self.aggregation is Aggregation.ONE_SHOT

    def to_json(self, places: bool) -> dict[str, object]:
        """Return the tier as JSON data, with its place in the text where ``places`` are told."""
        from zenc.plan.to_json import CODECS

        found: dict[str, object] = CODECS[places].encode(replace(self, depth=0))  # which is a default, so left out
        return found


@dataclass(frozen=True, slots=True)
class Phase:
    """The moves of one ``kind`` in one ``tier``, whose segments travel in ``format``.

    ``code``: how their values are encoded; None where they travel as they are. ``select``: the selections that each
    rank applies to its segments when the phase begins; empty for all units. ``merge``: those that it applies to
    each sum that it makes in a step, in a push under incremental aggregation.
    """

    kind: PhaseKind
    block: Block
    format: Format
    tier: Tier
    code: Code | None = None
    select: tuple[Selection, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)
    code_span: Span | None = field(default=None, compare=False, repr=False)
    merge: tuple[Selection, ...] = ()

    @property
    def name(self) -> str:
        """The name of the phase in words: push; push of node."""
        return f"{self.kind.value} of {self.tier.name}" if self.tier.name else self.kind.value

    @property
    def selects(self) -> tuple[Selection, ...]:
        """The selections when it begins, and those of its merges."""
        return self.select + self.merge

    @property
    def one_shot(self) -> bool:
        """Return whether the aggregation is one-shot: the value of ``one_shot`` in the moves."""
        return self.kind in SET_KINDS or self.tier.one_shot

    @property
    def keeps_apart(self) -> bool:
        """Return whether received pieces are kept apart until the phase ends."""
        return not self.completes and self.one_shot

    @property
    def completes(self) -> bool:
        """Return whether moves carry complete parts, which replace the receiver's pieces."""
        return self.kind.completes

    def to_json(self, places: bool) -> dict[str, object]:
        """Return the phase as JSON data, with places in the text where ``places`` are told."""
        from zenc.plan.to_json import CODECS, select_to_json, words_to_json

        return {
            "tier": self.tier.depth,
            "format": self.format.value,
            "moves": CODECS[places].encode(self.block),
            **words_to_json(code=self.code),
            **select_to_json(self.select, self.merge),
            **({"at": self.span.name} if self.span and places else {}),
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """A lowered scheme. ``size`` is the number of ranks that it is pinned to, None for any.

    ``link``: picoseconds of a byte between ranks, by which formats are chosen; 0 where only bytes count.
    """

    scheme: str
    doc: str
    parameters: tuple[tuple[str, int | float], ...]
    size: int | None
    mapping: Mapping
    unit: Unit
    tiers: tuple[Tier, ...]
    phases: tuple[Phase, ...]
    feedback: Feedback | None = None
    warmup: Warmup | None = None
    transform: Transform | None = None
    across: Holders | None = None
    link: int = 0

    @property
    def is_lossy(self) -> bool:
        """Return whether the sum may differ from that of the gradients, by a selection or a code."""
        return any(phase.code is not None or phase.selects for phase in self.phases)

    @property
    def votes(self) -> bool:
        """Return whether ranks vote by their momentum, all of which a call leaves; losses are kept nowhere."""
        return isinstance(self.feedback, Decay) and any(isinstance(phase.code, Vote) for phase in self.phases)

    def rounded(self, code: Rounded) -> Plan:
        """Return this plan with ``code`` in the phases that have no code; ranks keep its losses."""
        return replace(self, phases=tuple(replace(phase, code=phase.code or code) for phase in self.phases))

    @property
    def kept(self) -> tuple[str, ...]:
        """The vectors kept by name from call to call."""
        select = self.of(PhaseKind.PUSH)[0].select
        has = {
            "history": any(isinstance(one, Remembering) for one in select),
            FACTOR: any(isinstance(one, LowRank) for one in select),
        }
        own = self.feedback.vectors if self.feedback else ()
        return *own, *(name for name, is_kept in has.items() if is_kept)

    @property
    def reworks(self) -> bool:
        """Return whether a gradient is changed before it is packed; it must be dense then."""
        first = self.of(PhaseKind.PUSH)[0]
        return bool(first.select or self.kept) or isinstance(first.code, Fixed) or isinstance(self.mapping, Encoded)

    def of(self, *kinds: PhaseKind) -> tuple[Phase, ...]:
        """Return the phases of ``kinds``, in their order."""
        return tuple(phase for phase in self.phases if phase.kind in kinds)

    @property
    def announces(self) -> bool:
        """Return whether all ranks announce their index sets, and values then travel alone."""
        return isinstance(self.mapping, Holders)

    @property
    def inside(self) -> Plan:
        """The tiers inside of one with owners of its own: a plan among the ranks of one of its members."""
        phases = tuple(phase for phase in self.phases if phase.tier != self.tiers[-1])
        return replace(self, across=None, tiers=self.tiers[:-1], phases=phases)

    @property
    def outside(self) -> Plan:
        """The outermost tier, which has owners of its own: a plan among the ranks of one of its groups."""
        assert self.across is not None
        phases = tuple(phase for phase in self.phases if phase.tier == self.tiers[-1])
        return replace(self, mapping=self.across, across=None, tiers=self.tiers[-1:], phases=phases)

    def by_directory(self, size: int) -> bool:
        """Return whether a directory names the owners among ``size`` ranks."""
        mapping, members = self.across or self.mapping, self.counts(size)[-1]
        least = mapping.directory if isinstance(mapping, Holders) else None
        return least is not None and members >= max(2, least)

    def plays(self, phase: Phase, size: int) -> bool:
        """Return whether a call among ``size`` ranks has ``phase``: few ranks have no directory."""
        return phase.kind is not PhaseKind.DIRECTORY or self.by_directory(size)

    def is_bare(self, phase: Phase, size: int) -> bool:
        """Return whether values travel alone in ``phase`` among ``size`` ranks, which know the index before."""
        kinds = (PhaseKind.PULL,) if self.by_directory(size) else VALUE_KINDS
        owned = self.announces or (self.across is not None and phase.tier == self.tiers[-1])
        return owned and phase.kind in kinds

    @property
    def gathering(self) -> Plan:
        """The plan without a directory: all ranks hear all index sets, however many they are."""
        if not isinstance(self.mapping, Holders) or self.mapping.directory is None:
            return self
        phases = tuple(phase for phase in self.phases if phase.kind is not PhaseKind.DIRECTORY)
        return replace(self, mapping=Holders(), phases=phases)

    def counts(self, size: int) -> tuple[int, ...]:
        """Return the members of a group of each tier among ``size`` ranks."""
        inner = [tier.size or 1 for tier in self.tiers[:-1]]
        return (*inner, size // math.prod(inner))

    def parts(self, size: int) -> int:
        """Return the number of parts among ``size`` ranks."""
        counts = zip(self.tiers, self.counts(size), strict=True)
        return math.prod(count * tier.cut for tier, count in counts if tier.partition is Partition.PARALLELISM)

    def parts_of_mapping(self, size: int) -> int:
        """Return the number of parts that ``mapping`` cuts, without those of an outermost tier with its own owners."""
        return self.parts(size) if self.across is None else self.parts(size) // self.counts(size)[-1]

    def parts_in(self, phase: Phase, size: int) -> int:
        """Return the number of parts in the moves of ``phase``: index sets are announced whole, or to a directory."""
        if phase.kind in SET_KINDS:
            return self.counts(size)[-1] if self.by_directory(size) else 1
        return self.parts(size)

    def to_json(self, meaning_only: bool = False) -> dict[str, object]:
        """Return the plan as JSON data; ``zenc.plan.to_json`` reads it back."""
        from zenc.plan.to_json import HEAD, mapping_to_json, words_to_json

        places = not meaning_only
        return {
            **HEAD,
            "scheme": self.scheme,
            "parameters": dict(self.parameters),
            "size": self.size,
            "mapping": mapping_to_json(self.mapping),
            **({} if self.across is None else {"across": mapping_to_json(self.across)}),
            "unit": self.unit.value,
            **({"link": self.link} if self.link else {}),
            "tiers": [tier.to_json(places) for tier in self.tiers],
            "pushes": [phase.to_json(places) for phase in self.of(PhaseKind.PUSH)],
            "pulls": [phase.to_json(places) for phase in self.of(PhaseKind.PULL)],
            **{phase.kind.value: phase.to_json(places) for phase in self.of(*SET_KINDS)},
            **words_to_json(feedback=self.feedback, warmup=self.warmup, transform=self.transform),
            **({} if meaning_only else {"doc": self.doc}),
        }

    def text(self) -> str:
        """Return the JSON text of the plan, for people and for files."""
        return json.dumps(self.to_json(), indent=2) + "\n"

    @property
    def digest(self) -> str:
        """64 hex digits that two plans share only if they mean the same; places and doc strings do not count."""
        text = json.dumps(self.to_json(meaning_only=True), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
