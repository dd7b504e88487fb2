"""Interpreter of tiers of which the outermost has owners of its own: segments inside, holders across.

    pushes inside -> segment of this rank's part -> announce, push and pull of its slots by holders -> segment -> pulls

The interpreter of the outermost tier takes a slot of the part for a unit, and the segment for the gradient.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, replace

import torch

from zenc.errors import SynchronisationError
from zenc.rank_ir.ir import Across, RankPhase, Statement
from zenc.runtime.cpu.channel import Channel
from zenc.runtime.cpu.directory_interpreter import DirectoryInterpreter, DirectoryOps, segment_ops
from zenc.runtime.cpu.executor import Script, play_phases
from zenc.runtime.cpu.holder_interpreter import HolderInterpreter, HolderOps
from zenc.runtime.cpu.inbox import Room
from zenc.runtime.cpu.ownership import HolderKernels
from zenc.runtime.cpu.segment_interpreter import SegmentInterpreter
from zenc.runtime.cpu.segments import HeldSegment, SegmentOps
from zenc.runtime.cpu.tiered.group import GroupChannel
from zenc.runtime.stats import PhaseStats
from zenc.wording import count


@dataclass(frozen=True, slots=True)
class OutermostTier:
    """The program of the outermost tier as a ``script``, its operations on the slots of one part, and a ``room``."""

    script: Script
    ops: HolderOps
    room: Room


def outermost_ops(of: SegmentOps, part: int, script: Script, kernels: HolderKernels, wanted: torch.Tensor) -> HolderOps:
    """Return the operations on the slots of ``part`` as units, by its owners; ``of`` are those on all parts.

    ``wanted`` [size, size] is as in HolderOps, of the group.
    """
    slots = of.slots[part]
    layout = replace(of.layout, units=slots, sparse_dim=1, natural_width=of.layout.width)
    whole = segment_ops(of.kernels, layout, (slots,), of.room)
    if script.program.by_directory:
        return DirectoryOps.of(whole, kernels, script.program.size)
    sets = segment_ops(of.kernels, replace(layout, width=0), (slots,), of.room)
    return HolderOps(whole, sets, kernels, wanted)


class TieredInterpreter(SegmentInterpreter):
    """Interpreter that also plays an Across, by one of holders; ``of_kinds`` are statistics by kind of phase."""

    of_kinds: dict[str, PhaseStats]

    def __init__(self, script: Script, channel: Channel, ops: SegmentOps, room: Room, outermost: OutermostTier) -> None:
        super().__init__(script, channel, ops, room)
        self.channel, self.outermost = channel, outermost
        self.of_phase = PhaseStats()

    def begin(self, phase: RankPhase, stats: PhaseStats) -> None:
        """Begin as ``Interpreter.begin`` does."""
        super().begin(phase, stats)
        self.of_phase = stats

    def play(self, statement: Statement) -> None:
        """Play as ``Interpreter.play`` does, also an Across."""
        if not isinstance(statement, Across):
            super().play(statement)
            return
        started = time.perf_counter()
        try:
            self.held[statement.result] = self._across(statement)
        except SynchronisationError as error:
            raise _located(error, statement) from error
        self.of_phase.seconds -= time.perf_counter() - started  # its phases have counted it

    def _across(self, statement: Across) -> HeldSegment:
        script, ops, held = self.outermost.script, self.outermost.ops, self.held[statement.segment]
        channel, room = GroupChannel(self.channel, statement.ranks, ops.whole.layout.units), self.outermost.room
        player: HolderInterpreter
        if isinstance(ops, DirectoryOps):
            player = DirectoryInterpreter(script, channel, ops, room)
        else:
            player = HolderInterpreter(script, channel, ops, room)
        player.own = held
        (number,) = script.program.pack.results
        player.sets.hold(number, held.count, held.bitmap, held.keep)
        play_phases(script, player, channel, self.of_kinds)
        return self._summed(player, held.part, statement.result)

    def _summed(self, player: HolderInterpreter, part: int, number: int) -> HeldSegment:
        """Return the sum of the outermost tier as a segment of ``part``, to be sent as the plan says of ``number``."""
        _, values = player.expand_units()
        bitmap = torch.zeros(self.ops.part_words, dtype=torch.int64, device="cpu")
        bitmap[: player.owners.words] = player.owners.any
        found = self.ops.framed(part, self.rank, player.owners.present, bitmap.data_ptr(), bitmap, self.formats[number])
        ctypes.memmove(found.values, values.data_ptr(), values.numel() * values.element_size())
        return found


def _located(error: SynchronisationError, statement: Across) -> SynchronisationError:
    ranks = ", ".join(map(str, statement.ranks))
    note = f"in the outermost tier, whose {count(len(statement.ranks), 'rank')} here are {ranks}"
    return SynchronisationError([replace(each, notes=(*each.notes, note)) for each in error.diagnostics])
