"""Expected message bytes for gradients that a sparsity profile describes.

A piece with the contributions of k ranks holds d_k of the slots of its part: of its own range of units where parts are
ranges, and of all units where they are mixed. Blocks, index formats, headers and padding are those of
``zenc.wire.formats``; their exact sizes for given gradients become means here.

By holders n ranks hold U = units * d_n units together, and every owner U / n of them. k ranks hold F = units * d_k;
each of the other n - k parts has its share of the units outside of their own parts. Where a directory names the owners,
a rank has index sets of 1 / n of the units, and pushed values have an index among the slots of their part.

An outermost tier with owners of its own is weighed as a plan by itself, among its members: with gradients of the units
that the ranks of a member hold together of one of the parts inside, and an even share of these in each part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from zenc.analysis.contribution import contributed, selected_later
from zenc.gradients.index_sets import ensure, unsound_density, unsound_tensor
from zenc.gradients.profile import Profile
from zenc.gradients.profile_generators import uniform
from zenc.gradients.spec import GradientSpec
from zenc.plan.expressions import Ints, Mask
from zenc.plan.ir import SET_KINDS, VALUE_KINDS, Phase, PhaseKind, Plan
from zenc.scheme.compression import Code
from zenc.scheme.model import Contiguous, Encoded, Format, Unit
from zenc.verify.provenance import Deliveries
from zenc.wire import formats
from zenc.wire.codes import most_encoded_bytes
from zenc.wire.constants import DTYPE_BYTES
from zenc.wire.formats import BY_BYTES, FormatCosts, block_of, format_costs, padded
from zenc.wire.structs import MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES

Floats: TypeAlias = npt.NDArray[np.float64]
Small: TypeAlias = npt.NDArray[np.int32]
AnyInts: TypeAlias = Ints | Small

OWNER_BYTES = 2
"""Bytes of the owner of a unit, the number of a rank, in a directory."""
FEW_UNITS = 8
CHEAPEST = (Format.COO, Format.BITMAP, Format.ELIAS_FANO)
"""The formats of which ``auto`` takes the cheapest."""


@dataclass(frozen=True, slots=True, eq=False)
class DeliveryCounts:
    """Deliveries: ``pieces`` of ``part`` from ``src`` to ``dst``, each the contributions of ``contributors`` ranks.

    ``owned``: whether the rank that owns the part is among them, which counts by holders alone.
    """

    src: Ints
    dst: Ints
    part: Ints
    pieces: AnyInts
    contributors: AnyInts
    owned: AnyInts | Mask


class TierCounts:
    """The counts of deliveries as each tier counts them: ``members`` have owners in the outermost one, or all ranks."""

    def __init__(self, plan: Plan, size: int) -> None:
        self.plan, self.size = plan, size
        self.members = size if plan.across is None else plan.counts(size)[-1]
        self.inner = size // self.members
        self.cut = plan.tiers[-1].cut if plan.announces else 1

    def of(self, phase: Phase, some: DeliveryCounts) -> DeliveryCounts:
        """Return ``some`` as the tier of ``phase`` counts them: members contribute; tiers inside move whole parts."""
        if self.plan.across is None or phase.kind in SET_KINDS:
            return some
        if phase.tier == self.plan.tiers[-1]:
            return replace(some, part=some.part % self.members, contributors=some.contributors // self.inner)
        rows = some.part % self.members == 0
        columns = {name: getattr(some, name)[rows] for name in some.__slots__}
        return DeliveryCounts(**columns | {"part": columns["part"] // self.members})

    def owner(self, part: Ints) -> Ints:
        """Return the member that owns each ``part`` [parts], by holders."""
        return part // self.cut % self.members

    def owned(self, kind: PhaseKind, moved: Deliveries) -> Mask:
        """Return whether the owner of the part has contributed, [rows] of ``moved``; by holders.

        All ranks of a member of an outermost tier have contributed, or none.
        """
        part, everyone = self.owner(moved.part) * self.inner, np.asarray(moved.contributors == self.size)
        if kind is PhaseKind.PULL:
            return everyone
        bit = moved.members[np.arange(len(part)), part // 64] >> (part % 64).astype(np.uint64)
        return np.asarray(everyone | (bit & np.uint64(1)).astype(bool))


@dataclass(eq=False)
class ExpectedBytes:
    """The expected bytes of the steps of ``plan`` among ``size`` ranks, for gradients like ``profile``."""

    plan: Plan
    size: int
    profile: Profile
    gpu: bool = False
    """True where ranks are GPUs, by whose kernels formats are chosen where the link is known."""
    gradient: Profile = field(init=False)
    """The profile before any selection; ``profile`` is that of the packed gradient from here on."""
    tiers: tuple[ExpectedBytes, ExpectedBytes] | None = field(init=False, default=None)
    """The expected bytes of the tiers inside of one with owners of its own, and of that tier, each by itself."""
    _known: dict[tuple[str, int], tuple[Floats, Floats]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.gradient, self.profile = self.profile, contributed(self.plan, self.profile)
        self.counted = TierCounts(self.plan, self.size)
        self.parts, self.costs = self.plan.parts(self.size), format_costs(self.plan.link, self.gpu)
        in_ranges = isinstance(self.plan.mapping, Contiguous | Encoded)
        contiguous = in_ranges and len(self.profile.ranges) > 1
        self.ranges = self.parts if contiguous and self.parts > 1 else 1
        """Parts that may weigh differently: ranges of a gradient that is skewed."""
        elements = self.plan.unit is Unit.ELEMENT and self.profile.width > 1
        self.grain = self.profile.width if elements else 1
        """Units of the plan in a unit of the profile: elements of a row, which are present together."""
        self.units, self.unit_bytes = self.profile.units * self.grain, self.profile.unit_bytes // self.grain
        self.slots = self.units / self.parts
        self.blocks = blocks_of(self.plan)
        neighbours = block_of(self.plan.mapping, self.units, self.profile.width // self.grain, self.parts)
        self.kept = max(1, self.units) if in_ranges else neighbours
        """Units of the plan that are neighbours in every layout."""
        if self.plan.across is not None:
            members, inner = self.counted.members, self.counted.inner
            cut = self.plan.parts_of_mapping(self.size)
            outside = ExpectedBytes(self.plan.outside, members, self.profile.merged(inner, cut), self.gpu)
            self.tiers = ExpectedBytes(self.plan.inside, inner, self.profile, self.gpu), outside

    def of(self, phase: Phase) -> ExpectedBytes:
        """Return the weights of ``phase``: its tier's where the outermost tier has its own owners, otherwise these."""
        return self if self.tiers is None else self.tiers[phase.tier == self.plan.tiers[-1]]

    @property
    def by_holders(self) -> bool:
        """Return whether parts are the units of one owner among their holders."""
        return self.plan.announces

    @property
    def by_directory(self) -> bool:
        """Return whether a directory names the owners."""
        return self.plan.by_directory(self.size)

    def is_bare(self, phase: Phase) -> bool:
        """Return whether values travel alone, without indices and headers of segments."""
        return self.plan.is_bare(phase, self.size)

    def rows(self, phase: Phase, part: Ints, pieces: AnyInts, contributors: AnyInts, owned: AnyInts | Mask) -> Floats:
        """Return the bytes [rows] of ``pieces`` of ``part``, without headers of messages; all arguments are [rows].

        Each piece sums ``contributors`` ranks; ``owned``: the owner of the part is among those of one of them.
        Parts and contributors are counted as the tier of the phase has them, where that has owners of its own.
        """
        if self.tiers is not None:
            return self.of(phase).rows(phase, part, pieces, contributors, owned)
        if phase.kind in SET_KINDS:
            return np.asarray(pieces * self._set_bytes(phase.kind))
        if self.by_holders:
            _, whole = self._segment(self._held(self.size), self.is_bare(phase))
            return np.asarray(owned * whole + (pieces - owned) * self._of(phase, contributors, part))
        return np.asarray(pieces * self._of(phase, contributors, part))

    def delivered(self, phase: Phase, moved: Deliveries, message: Ints, count: int) -> Floats:
        """Return the bytes [count] of ``count`` messages; ``message[i]`` carries row i of ``moved``."""
        values, each = self.of(phase).by_holders and phase.kind in VALUE_KINDS, moved.contributors // moved.pieces
        owned = self.counted.owned(phase.kind, moved) if values else np.zeros(len(moved.part), dtype=bool)
        some = self.counted.of(phase, DeliveryCounts(message, message, moved.part, moved.pieces, each, owned))
        rows = self.rows(phase, some.part, some.pieces, some.contributors, some.owned)
        return self.messages(phase, np.asarray(np.bincount(some.src, rows, minlength=count), dtype=np.float64))

    def messages(self, phase: Phase, rows: Floats) -> Floats:
        """Return the bytes [messages] of messages whose bodies weigh ``rows``.

        Bare ones without a unit are not sent.
        """
        if self.tiers is not None:
            return self.of(phase).messages(phase, rows)
        if not self.is_bare(phase):
            return rows + MESSAGE_HEADER_BYTES
        return np.asarray(rows + MESSAGE_HEADER_BYTES * -np.expm1(-rows / self.unit_bytes))

    @property
    def own_units(self) -> float:
        """The units that a rank contributes."""
        return self.units * self.profile.density

    @property
    def result_units(self) -> float:
        """The units of the result: of any rank, with those that blocks or a dense pull fill up."""
        last = self.plan.phases[-1]
        if last.format is Format.DENSE:
            return self.units
        density = self._density(self.size, self.blocks[last.name])
        return self.units * float(selected_later(self.plan, last, self.size, self.size, density).mean())

    def units_held(self, ranks: int) -> float:
        """Return the units that ``ranks`` ranks hold together."""
        return self.units * float(self.profile.union(ranks))

    def units_a_byte(self, phase: Phase, contributors: Iterable[int]) -> float:
        """Return units per byte of the pieces of ``phase``, with each of these numbers of contributors as often."""
        if self.tiers is not None:
            return self.of(phase).units_a_byte(phase, contributors)
        if phase.kind in SET_KINDS:
            return self._set_units(phase.kind) / self._set_bytes(phase.kind)
        if self.is_bare(phase):
            return 1 / self.unit_bytes
        found = [self.piece(phase, ranks) for ranks in contributors]
        units, bytes = (sum(float(each[column].sum()) for each in found) for column in (0, 1))
        return units / bytes if bytes else 0.0

    def _of(self, phase: Phase, contributors: AnyInts, part: Ints) -> Floats:
        """Return the bytes of one piece of each row."""
        kinds = kinds_of(contributors)
        table = np.stack([self.piece(phase, kind)[1] for kind in kinds])
        if len(kinds) == 1:
            return np.asarray(table[0][part] if self.ranges > 1 else np.broadcast_to(table[0], part.shape))
        place = np.zeros(kinds[-1] + 1, dtype=np.int64)
        place[kinds] = np.arange(len(kinds))
        return np.asarray(table[place[contributors], part if self.ranges > 1 else 0])

    def piece(self, phase: Phase, contributors: int) -> tuple[Floats, Floats]:
        """Return units and bytes of a piece of ``contributors`` ranks; [parts that may weigh differently] each."""
        key = (phase.name, contributors)
        if key not in self._known:
            self._known[key] = self._weigh(phase, contributors)
        return self._known[key]

    def _weigh(self, phase: Phase, contributors: int) -> tuple[Floats, Floats]:
        if self.by_holders:
            held = self._held(contributors)
            return np.array([held]), np.array([self._segment(held, self.is_bare(phase))[1]])
        if phase.format is Format.DENSE:
            counts = np.full(self.ranges, self.slots)
        else:
            density = self._density(contributors, self.blocks[phase.name])
            counts = self.slots * selected_later(self.plan, phase, self.size, contributors, density)
        if phase.code is None:
            values = np.ceil(np.round(counts) * self.unit_bytes / 8) * 8
            return counts, SEGMENT_HEADER_BYTES + index_bytes(phase.format, self.slots, counts, self.costs) + values
        width = self.unit_bytes // DTYPE_BYTES[self.profile.dtype]
        coded = coded_bytes(phase.code, np.round(counts).astype(np.int64) * width, contributors)
        return counts, SEGMENT_HEADER_BYTES + index_bytes(phase.format, self.slots, counts, self.costs) + coded

    def _density(self, contributors: int, block: int) -> Floats:
        """Return the share of slots that ``contributors`` ranks fill, in blocks; for each part, or for all alike."""
        if self.ranges > 1:
            edges = np.asarray(np.arange(self.parts + 1) * (self.profile.units / self.parts), np.float64)
            if block // self.grain > 1:
                return self._blocks_between(contributors, block // self.grain, edges)
            return self.profile.union_between(edges[:-1], edges[1:], contributors)
        together = min(block, self.kept)
        held = self.profile.blocks(contributors, max(1, together // self.grain))
        return np.array([float(held if together == block else 1 - (1 - held) ** (block / together))])

    def _blocks_between(self, contributors: int, block: int, edges: Floats) -> Floats:
        """Return the share of a part's blocks with any unit: the mean over places in it, as fine as its ranges."""
        inside = max(1, -(-len(self.profile.ranges) // self.parts))
        cuts = np.linspace(edges[:-1], edges[1:], inside + 1)
        held = self.profile.union_between(cuts[:-1], cuts[1:], contributors)
        return np.asarray((1 - (1 - held) ** block).mean(axis=0))

    @property
    def set_slots(self) -> float:
        """The units that one index set covers: all of them, or the part of one rank's directory."""
        return self.units / self.size if self.by_directory else self.units

    def _set_units(self, kind: PhaseKind) -> float:
        among = self.size if self.by_directory else 1
        return (self.own_units if kind is PhaseKind.ANNOUNCE else self.units_held(self.size)) / among

    def _set_bytes(self, kind: PhaseKind) -> float:
        units = self._set_units(kind)
        owners = 0.0 if kind is PhaseKind.ANNOUNCE else padded(math.ceil(units * OWNER_BYTES))
        return SEGMENT_HEADER_BYTES + _mean_index_bytes(self.set_slots, units, self.costs) + owners

    def _segment(self, units: float, bare: bool) -> tuple[float, float]:
        """Return the bytes of the index, and of all, of a segment of ``units`` of a part by holders."""
        values = _values(units, self.unit_bytes)
        if bare:
            return 0.0, values
        slots = self.units_held(self.size) / self.size
        index = 0.0 if units >= slots else _mean_index_bytes(slots, units, self.costs)
        return index, SEGMENT_HEADER_BYTES + index + values

    def _held(self, ranks: int) -> float:
        """Return units of a part that ``ranks`` hold together, without the owner unless they are all."""
        slots, cut = self.units_held(self.size) / self.size, self.counted.cut
        others = 0.0 if ranks == self.size else (self.units_held(ranks) - ranks * slots) / (self.size - ranks)
        return slots / cut if ranks == self.size else max(0.0, others / cut)


def expected_bytes(plan: Plan, size: int, gradient: GradientSpec, gpu: bool = False) -> ExpectedBytes:
    """Return the expected bytes of gradients in which every rank holds a share of the units at random.

    Raises SchemeError (``bad-load``) for an impossible gradient.
    """
    density, units, width, dtype = gradient.density, gradient.units, gradient.width, gradient.dtype
    ensure([unsound_density(density), *unsound_tensor(units, width, dtype)])
    profile = uniform(density, units, width, dtype) if units else uniform(0.0, 1, width, dtype)  # which nobody holds
    return ExpectedBytes(plan, size, profile, gpu)


def kinds_of(numbers: AnyInts) -> list[int]:
    """Return the different ``numbers``, of any shape [n] and 0 or more, ascending."""
    found: list[int] = np.flatnonzero(np.bincount(numbers)).tolist()
    return found


def _mean_index_bytes(slots: float, units: float, costs: FormatCosts) -> float:
    """Return the bytes of an index in the cheapest format: for few units the mean, as if they came by chance."""
    if units >= FEW_UNITS:
        return float(index_bytes(Format.AUTO, slots, np.array([units]), costs)[0])
    counts = np.arange(4 * FEW_UNITS, dtype=np.float64)
    logs = np.cumsum(np.r_[0.0, np.log(counts[1:])])
    chances = np.exp(counts * math.log(units) - units - logs) if units > 0 else (counts == 0).astype(np.float64)
    return float(index_bytes(Format.AUTO, slots, np.minimum(counts, slots), costs) @ chances)


def _values(units: float, unit_bytes: int) -> float:
    """Return the expected bytes of the values of ``units``, padded to 8; the padding is half of the gap on average."""
    return units * unit_bytes if unit_bytes % 8 == 0 else units * unit_bytes + (8 - unit_bytes) / 2 * min(1.0, units)


def coded_bytes(code: Code, values: Ints, contributors: int) -> Floats:
    """Return the bytes [n] of ``values`` [n] in ``code``, padded; an upper bound where a coder decides."""
    kinds, place = np.unique(values, return_inverse=True)
    sizes = [padded(most_encoded_bytes(code, kind, contributors)) for kind in kinds.tolist()]
    return np.asarray(np.array(sizes, dtype=np.float64)[place.reshape(values.shape)])


def index_bytes(format: Format, slots: float, counts: Floats, costs: FormatCosts = BY_BYTES) -> Floats:
    """Return the bytes of each index, [n], of ``counts`` that may be means; of ``auto`` the cheapest."""
    counts, slots = np.round(counts), max(1, math.ceil(slots))
    if format is not Format.AUTO:
        return formats.index_bytes(format, slots, counts.astype(np.int64)).astype(np.float64)
    each = np.stack([index_bytes(one, slots, counts) for one in CHEAPEST])
    cheapest = np.argmin(each * (costs.byte or 1) + _index_work(slots, counts, costs), axis=0)
    return np.where(counts >= slots, 0.0, np.take_along_axis(each, cheapest[None], 0)[0])


def work_over_smallest(slots: float, counts: Floats, costs: FormatCosts) -> Floats:
    """Return the seconds [n] of writing and reading an index in the cheapest format, over those in the smallest."""
    counts, slots = np.round(counts), max(1.0, np.ceil(slots))
    work, bytes = _index_work(slots, counts, costs), np.stack([index_bytes(one, slots, counts) for one in CHEAPEST])
    chosen = [np.argmin(cost, axis=0)[None] for cost in (bytes * costs.byte + work, bytes)]
    cheapest, smallest = (np.take_along_axis(work, one, 0)[0] for one in chosen)
    return np.asarray(cheapest / np.maximum(smallest, 1.0))


def _index_work(slots: float, counts: Floats, costs: FormatCosts) -> Floats:
    """Return picoseconds [3, n] of writing and reading an index in ``coo``, ``bitmap`` and ``elias_fano``."""
    words = np.full_like(counts, np.ceil(slots / 64))
    listed = np.minimum(counts, np.maximum(slots - counts, 0))
    search = words * costs.search
    return np.stack([search + counts * costs.coo, words * costs.bitmap, search + listed * costs.elias_fano])


def blocks_of(plan: Plan) -> dict[str, int]:
    """Return, by phase, the units of the blocks that travel whole in it; 1 for single units.

    Filled blocks stay so in later phases, until a dense one, after which zeros are left out.
    """
    found, filled = {}, 1
    for phase in plan.of(*VALUE_KINDS):
        filled = max(filled, phase.format.block)
        found[phase.name] = filled
        filled = 1 if phase.format is Format.DENSE else filled
    return found
