"""The compute model: the kernels that each rank runs in each stage, and their units, bytes and slots.

    Computing = first Work* last            # seconds; one Work of each stage
    KernelWork      = before beside after         # [classes]: until messages start; while they flow; when all have come

Over a cut that is fixed, a rank packs its gradient; in every step it writes the indices of sent segments, reads those
of received ones, and in a push merges these with its own; at the end it expands the sum. By holders it announces its
index set, and chooses owners when it has those of all; from then on values travel alone. It finds the slots of other
ranks while the first values are on their way, and puts the sum together while its parts come. Where a directory names
the owners, it deals its index set out, chooses owners for the units it hears of, and hears the others; values are then
pushed with an index among the slots of their part.

A scheme that sums the elements of units that have several cuts them first, and collects them at the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
import numpy.typing as npt

from zenc.analysis.expected_bytes import ExpectedBytes, work_over_smallest
from zenc.plan.expressions import Ints
from zenc.plan.ir import PhaseKind
from zenc.scheme.model import Contiguous, Encoded, Format, HierarchicalHash, Holders
from zenc.simulator.calibration import HASHED, Calibration, Kernel
from zenc.simulator.compression_work import contributing, decoding, encoding, seconds, selecting
from zenc.simulator.symmetry import ClassProgram, Stage

Floats = npt.NDArray[np.float64]

LISTED = frozenset({Format.COO, Format.ELIAS_FANO, Format.AUTO})
"""Formats whose index has an entry for each unit; AUTO is one of the two where units are few."""


@dataclass(frozen=True, slots=True)
class KernelWork:
    """Seconds of a rank of each class, [classes], as the module describes."""

    before: Floats
    beside: Floats
    after: Floats


@dataclass(frozen=True, slots=True)
class Computing:
    """The computation of a call: ``first`` until the first message, ``last`` from the last step's end to the result."""

    first: float
    works: tuple[KernelWork, ...]
    last: float

    @property
    def busiest(self) -> float:
        """Seconds of the rank that computes longest."""
        of_stages = sum((work.before + work.beside + work.after for work in self.works), np.zeros(1))
        return self.first + float(of_stages.max()) + self.last


def computing(of: ClassProgram, expected: ExpectedBytes, calibration: Calibration) -> Computing:
    """Return the computation of the ranks of ``of``, each as fast as if it had a core of its own."""
    if expected.tiers is not None:
        return _tiered(of, expected, calibration)
    made = _kernels(of, expected, calibration)
    return Computing(made.first(), tuple(made.works()), made.last())


def _kernels(of: ClassProgram, expected: ExpectedBytes, calibration: Calibration) -> _OverACut | _ByHolders:
    kind = _ByDirectory if expected.by_directory else _ByHolders if expected.by_holders else _OverACut
    return kind(of, expected, calibration)


def _tiered(of: ClassProgram, expected: ExpectedBytes, calibration: Calibration) -> Computing:
    """Return the computation under an outermost tier with its own owners: a call by holders within one over the parts.

    The inner call's sum is put together after its last step.
    """
    assert expected.tiers is not None
    within = [expected.of(stage.phase) is expected.tiers[0] for stage in of.stages]
    inside, outside = (
        _kernels(replace(of, stages=tuple(compress(of.stages, chosen))), each, calibration)
        for each, chosen in zip(expected.tiers, (within, [not inner for inner in within]), strict=True)
    )
    across = list(outside.works())
    if across:
        across[-1] = replace(across[-1], after=across[-1].after + outside.last() - calibration.call / 2)
    works, outer = inside.works(), iter(across)
    last = calibration.call / 2 + inside.expansion(expected.result_units)
    return Computing(inside.first(), tuple(next(works) if inner else next(outer) for inner in within), last)


class _Kernels:
    """Base of both kinds of schemes."""

    def __init__(self, of: ClassProgram, expected: ExpectedBytes, calibration: Calibration) -> None:
        self.stages, self.sizes, self.expected, self.by = of.stages, of.sizes, expected, calibration
        self.ranks = len(of.sizes)
        self.nothing: Floats = np.zeros(self.ranks)
        ranks: dict[str, frozenset[int]] = defaultdict(frozenset)
        for stage in of.stages:
            ranks[stage.phase.name] |= stage.segments.contributors
        phases = {stage.phase.name: stage.phase for stage in of.stages}
        self.rates = {name: expected.units_a_byte(phase, sorted(ranks[name])) for name, phase in phases.items()}
        mapping, by = type(expected.plan.mapping), self.by
        ranges = by.expand if by.gpu and expected.parts > 1 else by.list
        self._expand = {Contiguous: ranges, Encoded: ranges, Holders: by.join}.get(mapping, by.expand)
        self._passed = expected.units * (HASHED if by.gpu and mapping is HierarchicalHash else 1.0)

    def first(self) -> float:
        expected, own = self.expected, self.expected.own_units
        cut = self.by.finer.seconds(own, 0.0, own) if expected.grain > 1 else 0.0
        values = expected.gradient.units * expected.gradient.width
        cut += sum(seconds(name, 4 * values, self.by) for name in contributing(expected.plan))
        return self.by.call / 2 + cut + self._packed()

    def _packed(self) -> float:
        """Return the seconds of packing the own gradient; where all of its units are there, no search is needed."""
        expected, own = self.expected, self.expected.own_units
        looked_for = self._passed if own < expected.units else 0.0
        return self.by.pack.seconds(own, own * expected.unit_bytes, looked_for)

    def expansion(self, units: float | None = None) -> float:
        """Return the seconds of expanding the sum, or ``units`` of it; a dense sum is used as it came."""
        expected, units = self.expected, self.expected.result_units if units is None else units
        if expected.plan.phases[-1].format is Format.DENSE:
            return units * expected.unit_bytes / self._expand.speed
        collected = self.by.coarser.seconds(units, 0.0, units) if expected.grain > 1 else 0.0
        return collected + self._expand.seconds(units, units * expected.unit_bytes, self._passed)

    def written(self, stage: Stage, slots: float, listed: bool = True) -> Floats:
        """Return the seconds [classes] of writing sent indices over ``slots`` each: one for all copies of a segment."""
        sent, different = stage.segments.by_rank.T[:2]
        units = self._units(stage, stage.src, stage.out) * different / np.maximum(sent, 1)
        return self._indexed(stage, units if listed else self.nothing, different, slots)

    def read(self, stage: Stage, slots: float, listed: bool = True) -> Floats:
        """Return the seconds [classes] of reading the received indices."""
        units = self._units(stage, stage.dst, stage.into)
        return self._indexed(stage, units if listed else self.nothing, stage.segments.by_rank[:, 2], slots)

    def _indexed(self, stage: Stage, units: Floats, segments: Floats, slots: float) -> Floats:
        smallest, costs = self.by.index.each(units, 0.0, segments * slots), self.expected.costs
        if stage.phase.format is not Format.AUTO or not costs.byte:
            return smallest
        return np.asarray(smallest * work_over_smallest(slots, units / np.maximum(segments, 1), costs))

    def encoded(self, stage: Stage, first: bool) -> Floats:
        """Return the values sent in a code: in every stage of a push that merges at once, else in the ``first``."""
        if stage.phase.code is None or not (first or (stage.phase.kind is PhaseKind.PUSH and not stage.phase.one_shot)):
            return self.nothing
        sent, different = stage.segments.by_rank.T[:2]
        units = self._units(stage, stage.src, stage.out) * different / np.maximum(sent, 1)
        return np.asarray(units * seconds(encoding(stage.phase.code), self.expected.unit_bytes, self.by))

    def decoded(self, stage: Stage) -> Floats:
        """Return the seconds [classes] of decoding received segments."""
        if stage.phase.code is None:
            return self.nothing
        units = self._units(stage, stage.dst, stage.into)
        return np.asarray(units * seconds(decoding(stage.phase.code), self.expected.unit_bytes, self.by))

    def merged(self, stage: Stage, slots: float, held: float | None = None) -> Floats:
        """Return the seconds [classes] of adding received segments to those held, and of selecting from the sums.

        ``held``: the units of each of these, or as many as a received one has.
        """
        if stage.phase.format is Format.DENSE:
            slots = 0.0
        came, parts = stage.segments.by_rank.T[2:]
        units = self._units(stage, stage.dst, stage.into)
        units = units + (units * parts / np.maximum(came, 1) if held is None else parts * held)
        select = sum(seconds(selecting(one), 4 * self.expected.gradient.width, self.by) for one in stage.phase.merge)
        added = self.by.merge.each(units, units * self.expected.unit_bytes, (came + parts) * slots)
        return np.asarray(added + units * select)

    def _units(self, stage: Stage, ranks: Ints, messages: Floats) -> Floats:
        bytes = np.bincount(ranks, messages * stage.bytes, minlength=self.ranks)
        return np.asarray(bytes * self.rates[stage.phase.name], np.float64)


class _OverACut(_Kernels):
    """The kernels of schemes whose parts are ranges of slots, and whose segments have indices."""

    def works(self) -> Iterator[KernelWork]:
        slots, before = self.expected.slots, None
        for stage in self.stages:
            listed = stage.phase.format in LISTED
            encoded, before = self.encoded(stage, stage.phase is not before), stage.phase
            after = self.read(stage, slots, listed) + self.decoded(stage)
            if stage.phase.kind is PhaseKind.PUSH:
                after = after + self.merged(stage, slots)
            yield KernelWork(self.written(stage, slots, listed) + encoded, self.nothing, after)

    def last(self) -> float:
        return self.by.call / 2 + self.expansion()


class _ByHolders(_Kernels):
    """The kernels by holders: index sets of all units are announced, and segments are values at known slots."""

    def works(self) -> Iterator[KernelWork]:
        kinds, units = [stage.phase.kind for stage in self.stages], self.expected.units
        slots = self.expected.result_units / self.expected.parts  # of a part: units that its owner has
        for number, stage in enumerate(self.stages):
            before, beside, after = self.nothing, self.nothing, self.nothing
            is_first = number == kinds.index(kinds[number])
            if kinds[number] is PhaseKind.ANNOUNCE:
                before, after = self.written(stage, units), self.read(stage, units)
                if kinds[number + 1 : number + 2] != [PhaseKind.ANNOUNCE]:  # owners are found
                    after = after + self._of_all(self.by.owners) + self._split()
            elif kinds[number] is PhaseKind.PUSH:
                beside = beside + (self._of_all(self.by.shares) if is_first else 0.0)
                after = self.merged(stage, slots, held=slots)
            else:
                beside = beside + self._placed(number, is_first)
            yield KernelWork(before, beside, after)

    def _split(self) -> float:
        own = self.expected.own_units
        return self.by.pack.seconds(own, own * self.expected.unit_bytes, self.expected.units)

    def _placed(self, number: int, is_first: bool) -> float:
        """Return the seconds of placing the parts of the pull's stage before ``number``, or at first the own part."""
        there = 1 / self.expected.size if is_first else self._arrived(self.stages[number - 1])
        return there * self.expansion()

    def last(self) -> float:
        """Return the seconds after the last step, with the placing of the last parts."""
        pulled = [stage for stage in self.stages if stage.phase.kind is PhaseKind.PULL]
        return self.by.call / 2 + (self._arrived(pulled[-1]) if pulled else 1.0) * self.expansion()

    def _of_all(self, kernel: Kernel) -> float:
        ranks = self.expected.size
        return kernel.seconds(ranks * self.expected.own_units, 0.0, ranks * self.expected.units)

    def _arrived(self, stage: Stage) -> float:
        """Return the share of all parts that comes to a rank in ``stage`` of the pull, on average."""
        return float(stage.segments.by_rank[:, 2] @ self.sizes) / (float(self.sizes.sum()) * self.expected.parts)


class _ByDirectory(_ByHolders):
    """The kernels with a directory: each rank announces its set in parts, names owners in one, and hears the others."""

    def works(self) -> Iterator[KernelWork]:
        kinds, expected = [stage.phase.kind for stage in self.stages], self.expected
        slots = expected.result_units / expected.size
        for number, stage in enumerate(self.stages):
            before, beside, after = self.nothing, self.nothing, self.nothing
            kind, is_first = kinds[number], number == kinds.index(kinds[number])
            is_last = kinds[number + 1 : number + 2] != [kind]
            if kind is PhaseKind.ANNOUNCE:
                before = self.written(stage, expected.set_slots) + (self._own(self.by.shares) if is_first else 0.0)
                after = self.read(stage, expected.set_slots) + (self._own(self.by.owners) if is_last else 0.0)
            elif kind is PhaseKind.DIRECTORY:
                before = self.written(stage, expected.set_slots)
                after = self.read(stage, expected.set_slots) + (self._heard() if is_last else 0.0)
            elif kind is PhaseKind.PUSH:
                before = self.written(stage, slots)
                after = self.read(stage, slots) + self.merged(stage, slots)
            else:
                beside = beside + self._placed(number, is_first)
            yield KernelWork(before, beside, after)

    def _own(self, kernel: Kernel) -> float:
        """Return the seconds of ``kernel`` on as many units as a rank contributes, and as its part hears of."""
        return kernel.seconds(self.expected.own_units, 0.0, self.expected.units)

    def _heard(self) -> float:
        """Return the seconds of listing all owners in the order of units, and of cutting the own gradient by them."""
        listed = self.by.list.seconds(self.expected.result_units, 0.0, self.expected.units)
        return listed + self._own(self.by.shares) + self._split()
