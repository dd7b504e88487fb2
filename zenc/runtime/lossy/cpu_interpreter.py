"""Interpreter of calls that select or encode, which works while bytes of others are on the way.

    push     accumulate, encode and send a part ─ and the next ─ ... ─ wait, decode ─ wait, decode ─ ... ─ merge
    pull     encode and send ─ write the own sum ─ wait, decode, average, write ─ wait, ...

A statement that selects or encodes is carried out when its result is first used, or when only waiting is left: the
order of statements is that of the program, and so are their results. The result is written part by part, after the last
exchange has begun. A call that fails leaves its tensor undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from zenc.rank_ir.ir import Decode, Encode, Exchange, Fill, Message, Select, Statement, used_by
from zenc.runtime.call.layout import Contribution, Layout
from zenc.runtime.cpu.channel import Channel
from zenc.runtime.cpu.executor import CpuCall, MakeCall, Script, SegmentInterpreter, calls_by
from zenc.runtime.cpu.inbox import Room
from zenc.runtime.cpu.segments import HeldSegment, SegmentOps
from zenc.runtime.lossy.coded_segments import CodedOps
from zenc.runtime.lossy.kernels import CompressionKernels
from zenc.runtime.lossy.losses import CallLosses, key_of


def lossy_calls(ops: SegmentOps, layout: Layout, kernels: CompressionKernels) -> MakeCall:
    """Make calls over tensors of ``layout`` that select or encode, where they are told what they lose."""
    plain, coded = calls_by(SegmentInterpreter, ops, layout), CodedOps(ops, kernels)

    def call(script: Script, channel: Channel, room: Room, losses: CallLosses | None) -> CpuCall:
        if losses is None:
            return plain(script, channel, room, losses)
        cut = ops.cut_at(losses.ends) if losses.ends else ops
        of_cut = CodedOps(cut, kernels) if losses.ends else coded
        return CpuCall(script, LossyInterpreter(script, channel, cut, room, of_cut, losses), channel, layout)

    return call


class Deferred:
    """A segment that is made when it is first asked for."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], HeldSegment]) -> None:
        self._make: Callable[[], HeldSegment] | None = make
        self._made: HeldSegment | None = None

    def segment(self) -> HeldSegment:
        """Return the segment, made once."""
        if self._make is not None:
            self._made, self._make = self._make(), None
        assert self._made is not None
        return self._made


class LossyInterpreter(SegmentInterpreter):
    """Interpreter of the statements of one call that loses values as ``losses`` says.

    ``deferred`` are the segments that are not made yet, by number; ``written`` those that are in the tensor already.
    """

    target: torch.Tensor | None = None
    """The dense values [units, width] that become the sum."""

    def __init__(
        self, script: Script, channel: Channel, ops: SegmentOps, room: Room, coded: CodedOps, losses: CallLosses
    ) -> None:
        super().__init__(script, channel, ops, room, coded)
        self.coded, self.losses = coded, losses
        self.deferred: dict[int, Deferred] = {}
        self.written: set[int] = set()
        self.finite = True

    def pack(self, contribution: Contribution, divisor: int) -> None:
        """Pack as ``SegmentInterpreter.pack`` does; full parts that are ranges of a dense tensor stay in place."""
        contribute, self.losses.contribute = self.losses.contribute, None
        if contribution.unit_ids is None:
            self.target = contribution.values.view(self.ops.layout.units, self.ops.layout.width)
        if not self._stays(contribution, divisor):
            if contribute is not None:
                contribute(0, self.ops.layout.units)
            super().pack(contribution, divisor)
            return
        assert self.target is not None
        for fill in self.script.fills:
            assert isinstance(fill, Fill)
            part = self.script.specs[fill.result].part
            self.deferred[fill.result] = Deferred(partial(self._part, self.target, part, contribute))
        self.counts_in = [self.ops.slots[self.script.specs[number].part] for number in self.program.own]
        self.own, self.keep = self.coded.full

    def _stays(self, contribution: Contribution, divisor: int) -> bool:
        """Return whether each part is filled up, is not sent as it is, and is a range of the tensor."""
        fills, pack = self.script.fills, self.program.pack
        return (
            contribution.unit_ids is None
            and divisor == 1
            and not pack.frees
            and len(fills) == len(pack.results)
            and all(isinstance(fill, Fill) and not (fill.format.block or fill.marks) for fill in fills)
            and all(self.formats[number] is None for number in self.program.own)
            and all(isinstance(self.coded.units_of(part), range) for part in range(self.program.parts))
        )

    def _part(self, values: torch.Tensor, part: int, contribute: Callable[[int, int], None] | None) -> HeldSegment:
        """Return all units of ``part`` where they are in ``values`` [units, width], once they are contributed."""
        units, ops = self.coded.units_of(part), self.ops
        assert isinstance(units, range)
        if contribute is not None:
            contribute(units.start, units.stop)
        else:
            values[units.start : units.stop].add_(0.0)  # zeros become +0
        bitmap, keep = self.coded.full
        at = values.data_ptr() + units.start * ops.unit_bytes
        return HeldSegment(part, self.rank, len(units), bitmap + part * ops.bitmap_bytes, at, (values, keep), None)

    def play(self, statement: Statement) -> None:
        """Play as ``SegmentInterpreter.play`` does; selections and codes wait for the first use of their result."""
        match statement:
            case Encode(result, segment, code):
                key = self._key(result, getattr(code, "seed", 0))
                self.deferred[result] = Deferred(partial(self._encoded, statement, key, self._source(segment)))
            case Select(result, segment):
                key = self._key(result)
                self.deferred[result] = Deferred(partial(self._selected, statement, key, self._source(segment)))
            case Decode(result, segment):
                self.held[result] = self.coded.decoded(self._get(segment))
            case Exchange():
                super().play(statement)
            case _:
                for number in used_by(statement):
                    self._get(number)
                super().play(statement)

    def _source(self, number: int) -> Callable[[], HeldSegment]:
        """Return a function for segment ``number`` later, whoever frees it meanwhile."""
        if number in self.deferred:
            return self.deferred[number].segment
        held = self.held[number]
        return lambda: held

    def _get(self, number: int) -> HeldSegment:
        if number in self.deferred:
            self.held[number] = self.deferred.pop(number).segment()
        return self.held[number]

    def _encoded(self, of: Encode, key: int, source: Callable[[], HeldSegment]) -> HeldSegment:
        spec, residual = self.script.specs[of.result], self.losses.residual if of.keeps else None
        told = spec, of.code, self.formats[of.result], key, residual, of.result in self.script.valued
        return self.coded.encode(source(), *told)

    def _selected(self, of: Select, key: int, source: Callable[[], HeldSegment]) -> HeldSegment:
        residual = self.losses.residual if of.keeps else None
        told = self.formats[of.result], key, self.losses, residual
        return self.coded.select(source(), of.selection, *told)

    def _key(self, number: int, seed: int = 0) -> int:
        spec = self.script.specs[number]
        return key_of(self.losses.salt, seed, self.number, spec.part, spec.ranks)

    def free(self, segments: Sequence[int]) -> None:
        """Free as ``SegmentInterpreter.free`` does; deferred segments stay there for those that need them."""
        for number in segments:
            if self.deferred.pop(number, None) is None:
                del self.held[number]

    def _exchange(self, step: Exchange) -> None:
        """Send each message once it is made, do all that is left, and decode messages as they come.

        Messages to the next ranks go first, and those of the ranks before are awaited first: so they come in turn.
        """
        inbox, outbox = self.inbox, self.outbox
        posted = inbox.post(step)
        outbox.finish()
        for message in sorted(step.sends, key=self._after):
            load = [self._get(number) for number in message.segments]
            outbox.send(step, [message], [load], self.format, self.stats)
        for number in list(self.deferred):
            self._get(number)
        writes = step is self.script.last and self.target is not None
        if writes:
            self._begin_result()
        order = sorted(range(len(step.receives)), key=lambda place: -self._after(step.receives[place]))
        rests = partial(outbox.send_rests, step)
        for number, segment in inbox.in_turn(step, posted, order, rests, self.stats):
            self.held[number] = segment
            if writes:
                self._write(number, in_place=True)

    def _after(self, message: Message) -> int:
        return (message.peer - self.rank) % self.program.size

    def _begin_result(self) -> None:
        """Write the complete parts, once all else of the tensor is 0; segments that are sent are not written to."""
        assert self.target is not None
        finals = self.program.expand.segments
        if not all(self.script.specs[number].full for number in finals):
            if self.own == self.coded.full[0]:
                self.target.zero_()
            else:
                self.ops.expand_into([], self.own, self.target)
        for number in finals:
            if number in self.held:
                self._write(number, in_place=False)

    def _write(self, number: int, in_place: bool) -> None:
        """Write the complete segment ``number`` averaged to its place; ``in_place``: its values may be written to."""
        assert self.target is not None
        segment, ranks = self.held[number], self.losses.averages
        self.written.add(number)
        units = self.coded.units_of(segment.part)
        if isinstance(units, range) and segment.count == len(units) and segment.count:
            self.finite &= not ranks or self.coded.is_finite(segment)
            place, values = self.target[units.start : units.stop], self.coded.values(segment)
            place.copy_(values) if ranks <= 1 else torch.div(values, ranks, out=place)
            return
        if ranks:
            self.finite &= self.coded.averaged(segment, ranks, in_place)
        self.ops.expand_into([segment], self.coded.nothing[0], self.target)

    def expand_into(self, tensor: torch.Tensor) -> None:
        """Expand as ``SegmentInterpreter.expand_into`` does, into the missing places of ``tensor`` [units, width]."""
        if self.losses.ends:
            self.losses.part_bytes = [self._body_bytes(segment) for segment in self._complete()]
        if not self.written:
            if self.losses.averages:
                self.finite = all([self.coded.averaged(each, self.losses.averages) for each in self._complete()])
            super().expand_into(tensor)
        if self.losses.averages:
            self.losses.finite = self.finite

    def _complete(self) -> list[HeldSegment]:
        return [self._get(number) for number in self.program.expand.segments]

    def _body_bytes(self, segment: HeldSegment) -> int:
        if segment.wire is None:
            return 0
        format = self.ops.wire_format(segment.part, segment.count, self.format)
        return self.ops.measure(segment.part, segment.count, format, segment.wire[1])[1]
