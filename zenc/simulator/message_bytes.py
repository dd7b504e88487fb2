"""Expected message bytes for gradients that a profile describes.

A piece with the contributions of k ranks holds d_k of the slots of its part: of its own range of units where parts are
ranges, and of all units where they are mixed. Blocks, index formats, headers and padding are those of
``zenc.wire.formats``; what is exact there for given gradients is here their mean. Under holders a part is what its
owner holds of the units that it was given, as ``zenc.analysis.holder_bytes`` has it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from zenc.analysis.volume import blocks_of
from zenc.gradients.profile import Profile
from zenc.plan.ir import Phase, PhaseKind, Plan
from zenc.scheme.model import BLOCKS, Contiguous, Format, Unit
from zenc.simulator.contributor_counts import CountedStep, DeliveryCounts
from zenc.wire.structs import MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES

Floats = npt.NDArray[np.float64]

_LONG = 1 << 32
"""Slots beyond which an index takes 8 bytes."""


@dataclass(eq=False)
class ProfileBytes:
    """Weighs what the steps of ``plan`` among ``size`` ranks carry, of gradients like ``profile``."""

    plan: Plan
    size: int
    profile: Profile
    _known: dict[tuple[str, int], Floats] = field(default_factory=dict)
    _weighed: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parts = self.plan.parts(self.size)
        contiguous = isinstance(self.plan.mapping, Contiguous) and len(self.profile.ranges) > 1
        self.ranges = self.parts if contiguous and self.parts > 1 else 1
        """Parts that may weigh differently: ranges of a gradient that is skewed."""
        elements = self.plan.unit is Unit.ELEMENT and self.profile.width > 1
        self.grain = self.profile.width if elements else 1
        """Units of the plan in one of the profile: elements of a row, which are there together."""
        self.units, self.unit_bytes = self.profile.units * self.grain, self.profile.unit_bytes // self.grain
        self.slots = self.units / self.parts
        self.blocks = {name: max(1, block // self.grain) for name, block in blocks_of(self.plan).items()}

    @property
    def bare(self) -> bool:
        """Values travel alone, without indices and headers of segments."""
        return self.plan.announces

    def rows(self, step: CountedStep, carried: DeliveryCounts) -> Floats:
        """The bytes [rows] of each row of ``carried``, headers of messages left out."""
        pieces = carried.pieces.astype(np.float64)
        if step.phase.kind is PhaseKind.ANNOUNCE:
            return np.asarray(pieces * self._announced())
        if self.bare:
            others = self._of(step, carried.contributors, carried.part)
            whole = _values(self._held(self.size), self.unit_bytes)
            return np.asarray(carried.owned * whole + (pieces - carried.owned) * others)
        return np.asarray(pieces * self._of(step, carried.contributors, carried.part))

    def messages(self, rows: Floats) -> Floats:
        """The bytes [messages] of messages whose bodies weigh ``rows``. Bare ones without a unit are not sent."""
        if not self.bare:
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
        return self.units * float(self._density(self.size, self.blocks[last.name]).mean())

    def units_a_byte(self, phase: Phase) -> float:
        """Units per byte of pieces, of ``phase`` and all that was weighed of it."""
        if phase.kind is PhaseKind.ANNOUNCE:
            return self.own_units / self._announced()
        if self.bare:
            return 1 / self.unit_bytes
        units, bytes = self._weighed.get(phase.name, (0.0, 0.0))
        return units / bytes if bytes else 0.0

    def _of(self, step: CountedStep, contributors: npt.NDArray[np.int32], part: npt.NDArray[np.int64]) -> Floats:
        """The bytes of one piece of each row."""
        lowest, highest = int(contributors.min(initial=0)), int(contributors.max(initial=0))
        kinds = [lowest] if lowest == highest else np.flatnonzero(np.bincount(contributors)).tolist()
        table = np.stack([self._piece(step.phase, kind) for kind in kinds])
        if len(kinds) == 1:
            return np.asarray(table[0][part] if self.ranges > 1 else np.broadcast_to(table[0], part.shape))
        place = np.zeros(highest + 1, dtype=np.int64)
        place[kinds] = np.arange(len(kinds))
        return np.asarray(table[place[contributors], part if self.ranges > 1 else 0])

    def _piece(self, phase: Phase, contributors: int) -> Floats:
        """The bytes of a piece with what so many ranks contributed, of each part that may weigh differently."""
        key = (phase.name, contributors)
        if key not in self._known:
            self._known[key] = self._weigh(key, phase.format)
        return self._known[key]

    def _weigh(self, key: tuple[str, int], format: Format) -> Floats:
        (name, contributors), unit_bytes = key, self.unit_bytes
        if self.bare:
            return np.array([_values(self._held(contributors), unit_bytes)])
        if format is Format.DENSE:
            counts = np.full(self.ranges, self.slots)
        else:
            counts = self.slots * self._density(contributors, self.blocks[name])
        pieces = SEGMENT_HEADER_BYTES + body_bytes(format, self.slots, counts, unit_bytes)
        units, bytes = self._weighed.get(name, (0.0, 0.0))
        self._weighed[name] = units + float(counts.sum()), bytes + float(pieces.sum())
        return pieces

    def _density(self, contributors: int, block: int) -> Floats:
        """Of the slots of each part that may weigh differently, those that so many ranks fill."""
        if self.ranges > 1:
            edges = np.asarray(np.arange(self.parts + 1) * (self.profile.units / self.parts), np.float64)
            if block > 1:
                return self._blocks_between(contributors, block, edges)
            return self.profile.union_between(edges[:-1], edges[1:], contributors)
        if block > 1:
            return np.array([float(self._block_density(contributors, block))])
        return np.array([float(self.profile.union(contributors))])

    def _block_density(self, contributors: int, block: int) -> float:
        if isinstance(self.plan.mapping, Contiguous):
            return float(self.profile.blocks(contributors, block))
        return float(1 - (1 - self.profile.union(contributors)) ** block)

    def _blocks_between(self, contributors: int, block: int, edges: Floats) -> Floats:
        """Blocks of a part that have any unit: the mean over places inside it, as finely as its ranges are."""
        inside = max(1, -(-len(self.profile.ranges) // self.parts))
        cuts = np.linspace(edges[:-1], edges[1:], inside + 1)
        held = self.profile.union_between(cuts[:-1], cuts[1:], contributors)
        return np.asarray((1 - (1 - held) ** block).mean(axis=0))

    def _announced(self) -> float:
        """One index set."""
        counts = np.array([self.units * self.profile.density])
        return SEGMENT_HEADER_BYTES + float(index_bytes(Format.AUTO, self.units, counts)[0])

    def _held(self, ranks: int) -> float:
        """Units of a part that ``ranks`` hold together, the owner not among them unless they are all."""
        slots = self.units * float(self.profile.union(self.size)) / self.size
        if ranks == self.size:
            return slots
        of_ranks = self.units * float(self.profile.union(ranks))
        return max(0.0, (of_ranks - ranks * slots) / (self.size - ranks))


def _values(units: float, unit_bytes: int) -> float:
    """Padded to 8 bytes, which takes half of what is missing on average."""
    return units * unit_bytes if unit_bytes % 8 == 0 else units * unit_bytes + (8 - unit_bytes) / 2 * min(1.0, units)


def body_bytes(format: Format, slots: float, counts: Floats, unit_bytes: int) -> Floats:
    """Of segments of a part of ``slots`` with ``counts`` [n] occupied ones on average; [n]."""
    return np.asarray(index_bytes(format, slots, counts) + np.ceil(np.round(counts) * unit_bytes / 8) * 8)


def index_bytes(format: Format, slots: float, counts: Floats) -> Floats:
    """The bytes of each index, [n]; the twin of ``zenc.wire.formats`` for many counts at once."""
    counts, slots = np.round(counts), max(1.0, np.ceil(slots))
    coo = np.ceil(counts * (4 if slots <= _LONG else 8) / 8) * 8
    bitmap = np.full_like(counts, np.ceil(slots / 64) * 8)
    if format is Format.DENSE:
        return np.zeros_like(counts)
    if format is Format.COO:
        return coo
    if format is Format.BITMAP:
        return bitmap
    if format in BLOCKS:
        return np.full_like(counts, np.ceil(np.ceil(slots / BLOCKS[format]) / 64) * 8)
    elias_fano = _elias_fano(slots, counts)
    if format is Format.ELIAS_FANO:
        return elias_fano
    return np.where(counts >= slots, 0.0, np.minimum(np.minimum(coo, bitmap), elias_fano))


def _elias_fano(slots: float, counts: Floats) -> Floats:
    listed = np.where(2 * counts <= slots, counts, np.maximum(slots - counts, 0))
    others = slots - listed
    low = np.floor(np.log2(np.maximum(others / np.maximum(listed, 1), 1)))
    bits = listed * low, listed + np.floor(others / 2**low)
    both = np.ceil(bits[0] / 64) * 8 + np.ceil(bits[1] / 64) * 8
    return np.asarray(np.where(listed > 0, both, 0.0))
