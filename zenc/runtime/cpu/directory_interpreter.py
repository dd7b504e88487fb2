"""Interpreter of programs by holders with a directory: each rank names the owners of the units in its part.

    index sets, dealt to parts -> owners chosen in each -> all parts heard -> values pushed with an index, pulled bare

The numbers of units in three spaces: of the tensor; of the directory, whose parts have a slot for each block of as many
units as there are ranks; and of the owners, whose parts are the units of each, ascending.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from zenc.plan.ir import PhaseKind
from zenc.rank_ir.ir import Agree, Carries, Choose, Deal, RankPhase, Split, Statement
from zenc.runtime.call.layout import Layout
from zenc.runtime.call.stats import PhaseStats
from zenc.runtime.cpu.channel import CallHeader, Channel, message_header
from zenc.runtime.cpu.executor import Script, SegmentInterpreter
from zenc.runtime.cpu.geometry import Geometry, Tables, words_of
from zenc.runtime.cpu.holder_interpreter import HolderInterpreter, HolderOps
from zenc.runtime.cpu.inbox import Room
from zenc.runtime.cpu.ownership import HolderKernels, Owners, table_of
from zenc.runtime.cpu.segments import HeldSegment, SegmentOps
from zenc.runtime.cpu.value_payload import RowPacker, Rows

OWNER = torch.float16
"""A dtype with the bytes of a rank's number: owners travel as if they were values."""


@dataclass(frozen=True, slots=True)
class DirectoryOps(HolderOps):
    """Operations with a directory: ``sets`` are of one part of it, ``named`` have owners too."""

    named: SegmentOps

    @classmethod
    def of(cls, whole: SegmentOps, kernels: HolderKernels, size: int) -> DirectoryOps:
        """Return the operations among ``size`` ranks; ``whole`` makes segments of all units."""
        layout = whole.layout
        slots = -(-layout.units // size)
        cut = replace(layout, units=size * slots, width=0), replace(layout, units=size * slots, width=1, dtype=OWNER)
        sets, named = (segment_ops(whole, each, (slots,) * size) for each in cut)
        return cls(whole, sets, kernels, torch.zeros(0, dtype=torch.bool, device="cpu"), named)


def segment_ops(whole: SegmentOps, layout: Layout, slots: tuple[int, ...]) -> SegmentOps:
    """Return operations like ``whole`` on parts of ``slots`` slots each, of which no tensor is packed or expanded."""
    geometry = Geometry(sum(slots), layout.width, len(slots), Tables(0, slots, None))
    return SegmentOps(whole.kernels, geometry, layout, whole.room, costs=whole.costs)


class DirectoryInterpreter(HolderInterpreter):
    """``sets`` holds index sets, ``named`` parts of the directory, and ``pushed`` values with an index."""

    pushed: SegmentInterpreter
    ops: DirectoryOps
    own_counts: list[int]

    def __init__(self, script: Script, channel: Channel, ops: DirectoryOps, room: Room) -> None:
        super().__init__(script, channel, ops, room)
        self.script, self.room = script, room
        self.named = SegmentInterpreter(script, channel, ops.named, room)

    @property
    def counts_in(self) -> list[int]:
        return self.own_counts

    def begin(self, phase: RankPhase, stats: PhaseStats) -> None:
        super().begin(phase, stats)
        self.playing = {Carries.SETS: self.sets, Carries.OWNERS: self.named}.get(phase.carries)
        if phase.kind is PhaseKind.PUSH:
            self.playing = self.pushed
        elif phase.kind is PhaseKind.PULL:
            self._take_sums()
        if self.playing is not None:
            self.playing.begin(phase, stats)

    def play(self, statement: Statement) -> None:
        match statement:
            case Deal(results):
                self._deal(results)
            case Choose(result, segments):
                self._choose(result, [self.sets.held[number] for number in segments])
            case Agree(sets):
                self._hear([self.named.held[number] for number in sets])
            case Split(results):
                self._split(results)
            case _ if self.playing is not None:
                self.playing.play(statement)
            case _:
                super().play(statement)

    def free(self, segments: Sequence[int]) -> None:
        super().free(segments)
        for number in segments:
            self.named.held.pop(number, None)
            if self.playing is not None:
                self.playing.held.pop(number, None)

    def end(self) -> None:
        if self.playing is not None:
            self.playing.end()
        super().end()

    def _deal(self, results: Sequence[int]) -> None:
        """Deal this rank's index set into one set for each part of the directory."""
        ops, size = self.ops.sets, len(results)
        bitmaps, counts = (
            torch.zeros(size, ops.part_words, dtype=torch.int64, device="cpu"),
            np.empty(size, dtype=np.int64),
        )
        words, outs = words_of(self.ops.whole.layout.units), table_of(bitmaps)
        self.ops.kernels.deal_units(self.own.bitmap, words, size, outs.data_ptr(), counts.ctypes.data)
        found = zip(results, counts.tolist(), outs.tolist(), strict=True)
        for part, (number, count, bitmap) in enumerate(found):
            format = self.sets.formats[number]
            self.sets.held[number] = ops.framed(part, self.program.rank, count, bitmap, bitmaps, format)

    def _choose(self, result: int, sets: list[HeldSegment]) -> None:
        """Choose the owners of all units in one part, by its ranks' sets there; of equals the first.

        Ranks are counted from that of the part on, or the lowest ones would own more than others.
        """
        ops, part, size = self.ops.named, sets[0].part, len(sets)
        bitmaps = [each.bitmap for each in (*sets[part:], *sets[:part])]
        words = words_of(ops.slots[part])
        any, owners = (
            torch.empty(ops.part_words, dtype=torch.int64, device="cpu"),
            np.empty(ops.slots[part], dtype=np.uint16),
        )
        count = ops.kernels.union(bitmaps, ops.part_words, any.data_ptr())
        table = torch.tensor(bitmaps, dtype=torch.int64, device="cpu")
        self.ops.kernels.choose_owners(size, table.data_ptr(), words, owners.ctypes.data, 0)
        chosen = ((owners[:count].astype(np.uint32) + part) % size).astype(np.uint16)
        format, rank = self.named.formats[result], self.program.rank
        named = ops.framed(part, rank, count, any.data_ptr(), any, format)
        ctypes.memmove(named.values, chosen.ctypes.data, chosen.nbytes)
        self.named.held[result] = named

    def _hear(self, parts: list[HeldSegment]) -> None:
        """Take all parts of the directory; from here on messages are of ranks with the same owners."""
        ops, call, size = self.ops, self.channel.call, len(parts)
        bitmaps, values = (
            torch.tensor(column, dtype=torch.int64, device="cpu")
            for column in zip(*[(p.bitmap, p.values) for p in parts], strict=True)
        )
        any = torch.empty(words_of(call.units), dtype=torch.int64, device="cpu")
        owners = torch.empty(sum(part.count for part in parts), dtype=torch.int16, device="cpu")
        slots = np.empty(size, dtype=np.int64)
        told = bitmaps.data_ptr(), values.data_ptr(), any.data_ptr(), owners.data_ptr(), slots.ctypes.data
        _, digest = ops.kernels.join_directory(call.units, size, *told)
        self.owners = Owners(ops.kernels, call.units, any, owners, slots.tolist(), digest)
        whole = ops.whole
        self.packer = RowPacker(self.owners, call, self.program.rank, whole.unit_bytes, whole.room)
        self.channel.call = CallHeader(call.call, call.signature ^ digest, call.units)
        self.channel.head = message_header(self.channel.call, self.program.rank, [], 0)
        cut = segment_ops(whole, whole.layout, tuple(self.owners.slots))
        self.pushed = SegmentInterpreter(self.script, self.channel, cut, self.room)

    def _split(self, results: Sequence[int]) -> None:
        """Split this rank's values into parts, each with the slots of its values."""
        ops, pushed, owners = self.pushed.ops, self.pushed, self.owners
        bitmaps, self.own_counts = owners.own_slots(self.own.bitmap, ops.part_words)
        told = zip(results, self.own_counts, table_of(bitmaps).tolist(), strict=True)
        for part, (number, count, bitmap) in enumerate(told):
            format = pushed.formats[number]
            pushed.held[number] = ops.framed(part, self.program.rank, count, bitmap, bitmaps, format)
        outs = [pushed.held[number].values for number in results]
        owners.split(self.own.bitmap, self.own.values, ops.unit_bytes, outs)

    def _take_sums(self) -> None:
        """Hold the parts that this rank has summed as rows without an index."""
        everyone = tuple(range(self.program.size))
        for number, sum in self.pushed.held.items():
            self._hold(number, Rows(sum.part, everyone, sum.count, sum.values, sum.keep))
        self.pushed.held.clear()
