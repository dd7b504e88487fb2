"""Interpreter of segments with an index, or of index sets: the pieces of a part by number, as HeldSegments.

Statements that select or encode are those of ``zenc.runtime.cpu.lossy``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import torch

from zenc.errors import Diagnostic, TensorError
from zenc.rank_ir.ir import Exchange, Fill, Merge, RankPhase, Sparsify, Statement
from zenc.runtime.cpu.channel import Channel, Outbox
from zenc.runtime.cpu.executor import CpuCall, Interpreter, Script
from zenc.runtime.cpu.inbox import Inbox, Room
from zenc.runtime.cpu.segments import HeldSegment, SegmentOps
from zenc.runtime.layout import Contribution, Layout
from zenc.runtime.stats import PhaseStats
from zenc.wording import count as plural

if TYPE_CHECKING:
    from zenc.runtime.compression.losses import CallLosses
    from zenc.runtime.cpu.lossy.coded_segments import CodedOps

Ops = TypeVar("Ops")
MakeCall: TypeAlias = "Callable[[Script, Channel, Room, CallLosses | None], CpuCall]"
"""Makes a call over a tensor of some layout, whose first packets come into the room."""


def calls_by(
    interpret: Callable[[Script, Channel, Ops, Room], Interpreter],
    ops: Ops,
    layout: Layout,
    result: Layout | None = None,
) -> MakeCall:
    """Make calls over tensors of ``layout`` that an interpreter plays with ``ops``, and no losses change."""

    def call(script: Script, channel: Channel, room: Room, losses: CallLosses | None) -> CpuCall:
        return CpuCall(script, interpret(script, channel, ops, room), channel, layout, result)

    return call


class SegmentInterpreter:
    """Interpreter of segments; ``held`` are the present ones, by number."""

    counts_in: list[int]
    own: int
    """The bitmap of this rank's own units in all parts, which ``keep`` owns."""
    keep: object

    number = 0
    """The number of the phase, from 1."""

    def __init__(
        self,
        script: Script,
        channel: Channel,
        ops: SegmentOps,
        room: Room,
        coded: CodedOps | None = None,
    ) -> None:
        self.script, self.program, self.formats, self.ops = script, script.program, script.formats, ops
        self.rank = script.program.rank
        self.inbox, self.outbox = Inbox(channel, ops, room, script.specs, coded), Outbox(channel, ops)
        self.held: dict[int, HeldSegment] = {}

    @property
    def counts_out(self) -> list[int]:
        return [segment.count for segment in self._complete()]

    def pack(self, contribution: Contribution, divisor: int) -> None:
        results = self.program.pack.results
        formats = [self.formats[number] for number in results]
        segments = self.ops.pack(contribution, divisor, self.rank, formats)
        self.own, self.keep = segments[0].bitmap, segments[0].keep
        self.held.update(zip(results, segments, strict=True))
        for fill in self.script.fills:
            self.play(fill)
            self.free(fill.frees)
        self.counts_in = [self.held[number].count for number in self.program.own]
        self._let_go(self.program.pack.frees)

    def _let_go(self, others: Sequence[int]) -> None:
        """Free the packed segments without a use: those of ``others`` than the parts that this rank owns."""
        for number in others:
            if count := self.held[number].count:
                part = self.script.specs[number].part
                message = f"rank {self.rank} gathers {plural(count, 'unit')} of part {part}, which it does not own"
                help = "give all_gather what reduce_scatter gave, or rows of collective.owned(shape) alone"
                raise TensorError(Diagnostic("not-owned", message, help=help))
        self.free(others)

    def hold(self, number: int, count: int, bitmap: int, keep: object) -> None:
        """Hold ``count`` units of a bitmap that ``keep`` owns as segment ``number``, without values."""
        self.held[number] = self.ops.framed(0, self.rank, count, bitmap, keep, self.formats[number])

    def begin(self, phase: RankPhase, stats: PhaseStats) -> None:
        self.format, self.stats = phase.format, stats
        self.number, self.inbox.code = self.number + 1, phase.code
        self.inbox.by_origin = phase.one_shot and not phase.kind.completes

    def play(self, statement: Statement) -> None:
        held, ops = self.held, self.ops
        match statement:
            case Exchange():
                self._exchange(statement)
            case Merge(result, segments):
                held[result] = ops.merge([held[number] for number in segments], self.rank, self.formats[result])
            case Fill(result, segment, format, marks):
                held[result] = ops.filled(held[segment], format, marks)
            case Sparsify(result, segment, marked):
                held[result] = ops.sparsify(held[segment], self.formats[result], marked)

    def free(self, segments: Sequence[int]) -> None:
        for number in segments:
            del self.held[number]

    def end(self) -> None:
        self.outbox.finish()

    def _exchange(self, step: Exchange) -> None:
        """Post all receives, send everything, then take the messages; all first packets before any rest."""
        held, inbox, outbox = self.held, self.inbox, self.outbox
        posted = inbox.post(step)
        outbox.finish()
        loads = [[held[number] for number in to.segments] for to in step.sends]
        outbox.send(step, step.sends, loads, self.format, self.stats)
        long = inbox.await_first(step, posted)
        outbox.send_rests(step)
        held.update(inbox.receive(step, long, self.stats))

    def expand_into(self, tensor: torch.Tensor) -> None:
        self.ops.expand_into(self._complete(), self.own, tensor)

    def expand_units(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.ops.expand_units(self._complete())

    def _complete(self) -> list[HeldSegment]:
        return [self.held[number] for number in self.program.expand.segments]
