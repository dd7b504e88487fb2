"""Interpreter of programs by holders: index sets travel first, then the ranks agree, and from there on values alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch

from zenc.plan.ir import PhaseKind
from zenc.rank_ir.ir import (
    Agree,
    Carries,
    Exchange,
    Merge,
    Message,
    RankPhase,
    RankProgram,
    SegmentSpec,
    Split,
    Statement,
)
from zenc.runtime.call.layout import Contribution
from zenc.runtime.call.stats import VALUES, PhaseStats
from zenc.runtime.cpu.channel import Channel, Sending, corrupt
from zenc.runtime.cpu.executor import Script, SegmentInterpreter
from zenc.runtime.cpu.geometry import words_of
from zenc.runtime.cpu.inbox import Room
from zenc.runtime.cpu.ownership import Agreement, DealtAgreement, HolderKernels, Owners
from zenc.runtime.cpu.segments import HeldSegment, SegmentOps
from zenc.runtime.cpu.value_payload import HEADER, RowPacker, Rows, SparseOutput
from zenc.runtime.transports.block_pool import own_room
from zenc.runtime.transports.transport import Pending

Posted: TypeAlias = list[tuple[int, torch.Tensor, Pending | None]]
"""The messages of a step: size, buffer, if it needs one, and receive, unless it is empty."""


@dataclass(frozen=True, slots=True)
class HolderOps:
    """Operations on tensors of one layout; ``whole`` makes segments of all units, ``sets`` index sets.

    ``wanted`` [size, size], bool: the parts for which each rank's slots matter here.
    """

    whole: SegmentOps
    sets: SegmentOps
    kernels: HolderKernels
    wanted: torch.Tensor


def wanted_by(program: RankProgram) -> torch.Tensor:
    """Return bool [size, parts]: the parts of each rank that are pushed to the rank of ``program``, which sums them."""
    wanted = torch.zeros(program.size, program.parts, dtype=torch.bool, device="cpu")
    for phase in program.phases:
        if phase.kind is PhaseKind.PUSH:
            numbers = [n for exchange in phase.exchanges for message in exchange.receives for n in message.segments]
            wanted[:, [program.segments[number].part for number in numbers]] = True
    return wanted


class HolderInterpreter:
    """Interpreter by holders; ``held`` are the present values, by number, and ``sets`` holds index sets."""

    owners: Owners
    agreed: Agreement
    """The owners, and the holders of each slot."""
    packer: RowPacker
    own: HeldSegment
    """The rank's own gradient."""

    def __init__(self, script: Script, channel: Channel, ops: HolderOps, room: Room) -> None:
        self.program, self.channel, self.ops = script.program, channel, ops
        self.sets = SegmentInterpreter(script, channel, ops.sets, room)
        self.held: dict[int, Rows] = {}
        self.posted: dict[int, Posted] = {}
        self.ahead: tuple[Exchange, ...] = ()
        self.sending: list[Sending] = []
        self.complete: list[Rows] = []
        self.output: SparseOutput | None = None

    @property
    def counts_in(self) -> list[int]:
        return self.agreed.counts_of(self.program.rank)

    @property
    def counts_out(self) -> list[int]:
        return [self.held[number].count for number in self.program.expand.segments]

    def pack(self, contribution: Contribution, divisor: int) -> None:
        rank, (number,) = self.program.rank, self.program.pack.results
        (own,) = self.ops.whole.pack(contribution, divisor, rank, [None])
        self.own = own
        self.sets.hold(number, own.count, own.bitmap, own.keep)

    def pack_units(self, units: torch.Tensor) -> tuple[int, object]:
        """Make this rank's own index set of ``units`` [n] int64, in any order; return its bitmap and memory's owner."""
        count, bitmap, keep = self.ops.sets.marked(units)
        self.sets.hold(self.program.pack.results[0], count, bitmap, keep)
        return bitmap, keep

    def begin(self, phase: RankPhase, stats: PhaseStats) -> None:
        self.phase, self.stats = phase, stats
        self.sets.begin(phase, stats)
        self.ahead = phase.exchanges[1:] if phase.kind is PhaseKind.PULL else ()

    def play(self, statement: Statement) -> None:
        match statement:
            case Exchange() if self.phase.carries is Carries.SETS:
                self.sets.play(statement)
            case Exchange():
                self._exchange(statement)
            case Merge(result, segments):
                self._hold(result, self._merged(result, [self.held[number] for number in segments]))
            case Agree(sets):
                self._agree([self.sets.held[number] for number in sets])
            case Split(results):
                self._split(results)

    def free(self, segments: Sequence[int]) -> None:
        for number in segments:
            self.held.pop(number, None)
            self.sets.held.pop(number, None)

    def end(self) -> None:
        self.sets.end()
        self.channel.wait_all(self.sending)

    def _agree(self, sets: list[HeldSegment]) -> None:
        ops, call = self.ops, self.channel.call
        bitmaps, cut = [each.bitmap for each in sets], self.program.parts // self.program.size
        of = ops.whole.kernels, ops.kernels, call.units, bitmaps, sets
        self._agreed_on(DealtAgreement(*of, cut) if cut > 1 else Agreement(*of, ops.wanted))

    def _agreed_on(self, agreed: Agreement, always: bool = False) -> None:
        whole, call = self.ops.whole, self.channel.call
        self.agreed = self.owners = agreed
        self.packer = RowPacker(agreed, call, self.program.rank, whole.unit_bytes, whole.room, always)

    def _split(self, results: Sequence[int]) -> None:
        rows = self.packer.framed_all(self.program.rank, self.counts_in)
        self.agreed.split(self.own.bitmap, self.own.values, self.ops.whole.unit_bytes, [each.values for each in rows])
        for number, each in zip(results, rows, strict=True):
            self._hold(number, each)

    def _hold(self, number: int, rows: Rows) -> None:
        self.held[number] = rows
        if self.program.segments[number].final:
            self.complete.append(rows)

    def _exchange(self, step: Exchange) -> None:
        """Exchange rows; received ones of a pull stay to the end, so that senders need not wait for their receivers.

        Work that does not need the values of others is done while they come.
        """
        posted = self.posted.pop(step.number, None) or self._post(step)
        self.channel.wait_all(self.sending)
        self._send(step)
        self.posted.update({later.number: self._post(later) for later in self.ahead})
        self.ahead = ()
        if self.phase.kind is PhaseKind.PUSH:
            self.agreed.learn()
        self._place()
        self._receive(step, posted)

    def _post(self, step: Exchange) -> Posted:
        posted: Posted = []
        tag, transport = self.channel.tag(step, 0), self.channel.transport
        receive, whole = transport.receive, transport.whole
        for message in step.receives:
            specs = [self.program.segments[number] for number in message.segments]
            size = self.packer.bytes_of(map(self.packer.count_of, specs))
            buffer = own_room(0 if whole(message.peer) else size)
            posted.append((size, buffer, receive(message.peer, tag, buffer) if size else None))
        return posted

    def _send(self, step: Exchange) -> None:
        tag, send = self.channel.tag(step, 0), self.channel.transport.send
        for message in step.sends:
            packet = self._sent(message)
            if packet is not None:
                size = packet.numel()
                self.sending.append((send(message.peer, tag, packet), message.peer, size, step))
                self.stats.sent(size)
                self.stats.body_sent(VALUES, size - HEADER)

    def _sent(self, message: Message) -> torch.Tensor | None:
        rows = [self.held[number] for number in message.segments]
        return self.packer.message(rows) if self.packer.bytes_of(each.count for each in rows) else None

    def _receive(self, step: Exchange, posted: Posted) -> None:
        """Receive rows; those without values come without a message."""
        for message, (size, buffer, pending) in zip(step.receives, posted, strict=True):
            packet, sender = buffer, message.peer
            if pending is not None:
                packet = self.channel.wait(pending, sender, step, size)
            specs = [self.program.segments[number] for number in message.segments]
            shares = self.channel.transport.shares(sender)
            opened = self._opened(packet, size, sender, specs, shared=shares)
            for number, rows in zip(message.segments, opened, strict=True):
                self._hold(number, rows)

    def _opened(
        self, packet: torch.Tensor, size: int, sender: int, specs: Sequence[SegmentSpec], shared: bool
    ) -> list[Rows]:
        """Return the rows in a ``packet`` [bytes], which must have ``size`` bytes; empty ones for 0."""
        if packet.numel() != size:
            raise corrupt(sender, f"it has {packet.numel():,} bytes, and the plan says {size:,}")
        if size:
            self.stats.received(size)
            self.stats.body_received(VALUES, size - HEADER)
        return self.packer.opened(packet, sender, specs, shared)

    def _merged(self, result: int, rows: Sequence[Rows]) -> Rows:
        """Return the sum of rows of one part, added in the order given."""
        part, ranks = self.program.segments[result].part, self.program.segments[result].ranks
        agreed, whole = self.agreed, self.ops.whole
        occupied = [each for each in rows if each.count]
        if len(occupied) <= 1:
            return replace((occupied or rows)[0], ranks=ranks)
        made = self.packer.framed(part, ranks)
        bitmaps = [agreed.bitmap(part, each.ranks) for each in occupied]
        values = [each.values for each in occupied]
        words = words_of(agreed.slots[part])
        whole.kernels.merge(whole.dtype, bitmaps, values, words, whole.layout.width, made.values)
        return made

    def _place(self) -> None:
        """Write complete rows to their place in the sum; a dense tensor is left alone until nothing can fail."""
        if self.complete and self.ops.whole.layout.is_sparse:
            if self.output is None:
                self.output = SparseOutput(self.owners, self.ops.whole.layout, self.ops.whole.unit_bytes)
            for rows in self.complete:
                self.output.add(rows)
            self.complete.clear()

    def expand_into(self, tensor: torch.Tensor) -> None:
        values = [self.held[number].values for number in self.program.expand.segments]
        self.owners.join_dense(values, self.ops.whole.unit_bytes, tensor.data_ptr())

    def expand_units(self) -> tuple[torch.Tensor, torch.Tensor]:
        self._place()
        assert self.output
        return self.output.ids, self.output.values
