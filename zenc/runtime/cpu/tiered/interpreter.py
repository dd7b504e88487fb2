"""Interpreter of tiers of which the outermost has owners of its own: segments inside, holders across.

    pushes inside -> segment of this rank's part -> announce, push and pull of its slots by holders -> segment -> pulls

The interpreter of the outermost tier takes a slot of the part for a unit, and the segment for the gradient.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from zenc.common.wording import count
from zenc.errors import SynchronisationError
from zenc.rank_ir.ir import Across, Exchange, RankPhase, RankProgram, Statement
from zenc.runtime.call.layout import Layout
from zenc.runtime.call.stats import PhaseStats
from zenc.runtime.cpu.channel import CallHeader, Channel
from zenc.runtime.cpu.directory_interpreter import DirectoryInterpreter, DirectoryOps, segment_ops
from zenc.runtime.cpu.executor import CpuCall, MakeCall, Script, SegmentInterpreter, play_phases, script_of
from zenc.runtime.cpu.holder_interpreter import HolderInterpreter, HolderOps, wanted_by
from zenc.runtime.cpu.inbox import Room, Rooms
from zenc.runtime.cpu.ownership import HolderKernels
from zenc.runtime.cpu.segments import HeldSegment, SegmentOps
from zenc.runtime.transports.transport import Pending, Transport


@dataclass(frozen=True, slots=True)
class OutermostTier:
    """The program of the outermost tier as a ``script``, its operations on the slots of one part, and a ``room``."""

    script: Script
    ops: HolderOps
    room: Room


def tiered_calls(
    ops: SegmentOps, layout: Layout, program: RankProgram, kernels: HolderKernels, rooms: Rooms
) -> MakeCall:
    """Make calls over tensors of ``layout``; ``rooms`` are for the outermost tier of ``program``."""
    assert program.across is not None
    outermost, part = script_of(program.across.program), program.segments[program.across.segment].part
    across = outermost_ops(ops, part, outermost, kernels)

    def call(script: Script, channel: Channel, room: Room, losses: object) -> CpuCall:
        tier = OutermostTier(outermost, across, rooms[channel.call.call % len(rooms)])
        interpreter = TieredInterpreter(script, channel, ops, room, tier)
        made = CpuCall(script, interpreter, channel, layout)
        interpreter.of_kinds = made.stats
        return made

    return call


def outermost_ops(of: SegmentOps, part: int, script: Script, kernels: HolderKernels) -> HolderOps:
    """Return the operations on the slots of ``part`` as units, by its owners; ``of`` are those on all parts.

    ``wanted`` [size, size] is as in HolderOps, of the group.
    """
    slots = of.slots[part]
    layout = replace(of.layout, units=slots, sparse_dim=1, natural_width=of.layout.width)
    whole = segment_ops(of, layout, (slots,))
    if script.program.by_directory:
        return DirectoryOps.of(whole, kernels, script.program.size)
    sets = segment_ops(of, replace(layout, width=0), (slots,))
    return HolderOps(whole, sets, kernels, wanted_by(script.program))


class GroupTransport:
    """The transport ``of`` all ranks, among ``ranks`` of them: rank i of the group is ``ranks[i]``."""

    def __init__(self, of: Transport, ranks: Sequence[int]) -> None:
        self.of, self.ranks, self.rank, self.size = of, ranks, ranks.index(of.rank), len(ranks)

    def shares(self, peer: int) -> bool:
        """Return ``Transport.shares`` of the group's ``peer``."""
        return self.of.shares(self.ranks[peer])

    def whole(self, peer: int) -> bool:
        """Return ``Transport.whole`` of the group's ``peer``."""
        return self.of.whole(self.ranks[peer])

    def room(self, size: int) -> torch.Tensor:
        """Return a tensor [size] of bytes, as ``Transport.room`` does."""
        return self.of.room(size)

    def send(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """Send as ``Transport.send`` does, from ``buffer`` [bytes]."""
        return self.of.send(self.ranks[peer], tag, buffer)

    def receive(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """Receive as ``Transport.receive`` does, into ``buffer`` [bytes]."""
        return self.of.receive(self.ranks[peer], tag, buffer)

    def close(self) -> None:
        """Do nothing: the transport is that of all ranks."""

    def release(self) -> None:
        """Do nothing, as ``close``."""


class GroupChannel(Channel):
    """The part of a ``whole`` call that is among ``ranks``, over a tensor of ``units`` units.

    Waits are those of the whole call, and errors name ranks as it does.
    """

    def __init__(self, whole: Channel, ranks: Sequence[int], units: int) -> None:
        header = CallHeader(whole.call.call, whole.call.signature, units)
        super().__init__(whole.scheme, whole.deadline, GroupTransport(whole.transport, ranks), header)
        self.ranks, self.turn, self.waited = ranks, whole.turn, whole.waited

    def _wait(self, pending: Pending, peer: int, step: Exchange, size: int | None, toward: str) -> torch.Tensor:
        return super()._wait(pending, self.ranks[peer], step, size, toward)


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
