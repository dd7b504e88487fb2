"""CPU executor: plays a rank program (``zenc.rank_ir.ir``), one rank's part of a call, in statements.

    Script       = RankProgram  specs: SegmentSpec*  formats: Format?*  fills: Fill*  (RankPhase ProfiledSpan*)+
    ProfiledSpan = name number  Statement+                             # one range in a profiler's timeline

Statements make numbered segments: the occupied units of a part, with their values. A script is a program made ready
once for all calls. A CpuCall plays it in order: pack the gradient into segments, play the phases, expand the sum.
An interpreter carries out each statement, and holds the segments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import torch

from zenc.common.wording import count as plural
from zenc.errors import Diagnostic, TensorError
from zenc.rank_ir.ir import (
    WHOLE,
    Across,
    Agree,
    Choose,
    Deal,
    Exchange,
    Fill,
    Merge,
    RankPhase,
    RankProgram,
    SegmentSpec,
    Select,
    Sparsify,
    Split,
    Statement,
    used_by,
)
from zenc.runtime.backend_api import Reduction
from zenc.runtime.call.call_queue import Turn
from zenc.runtime.call.layout import Contribution, Layout, contribution_of, sparse_result
from zenc.runtime.call.ranges import NOTHING, within
from zenc.runtime.call.stats import PhaseStats
from zenc.runtime.cpu.channel import CallHeader, Channel, Outbox
from zenc.runtime.cpu.inbox import Inbox, Room, Rooms
from zenc.runtime.cpu.segments import HeldSegment, SegmentOps
from zenc.scheme.model import Format

if TYPE_CHECKING:
    from zenc.runtime.lossy.coded_segments import CodedOps
    from zenc.runtime.lossy.losses import CallLosses


@dataclass(frozen=True, slots=True)
class ProfiledSpan:
    """Consecutive statements that are one range to a profiler: an exchange, or merges of received segments.

    ``name``: the kind of the phase, and ``number`` its exchange, from 1; or ``merge``, ``agree`` or ``across``, and 0.
    """

    name: str
    number: int
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """``program``, made ready for a CPU.

    ``specs``, ``formats``: by number of a segment, its description, and the format in which it may be sent first, or
    None if it never is. A segment of all units has part 0 here, the only one of its own geometry. ``fills``: the first
    statements of the program, where they fill up packed segments; they are part of the packing. ``phases``: each with
    its other statements. ``kinds``: those of all phases, each once. ``exchanges``: the number of those statements that
    are exchanges. ``valued``: the segments whose values this rank uses itself; others are only sent. ``last``: the
    exchange after which only the expansion is left, if there is one.
    """

    program: RankProgram
    specs: tuple[SegmentSpec, ...]
    formats: tuple[Format | None, ...]
    fills: tuple[Statement, ...]
    phases: tuple[tuple[RankPhase, tuple[ProfiledSpan, ...]], ...]
    kinds: tuple[str, ...]
    exchanges: int
    valued: frozenset[int]
    last: Exchange | None


def script_of(program: RankProgram) -> Script:
    """Return the script of ``program``."""
    first, *others = program.phases
    fills = tuple(takewhile(lambda s: isinstance(s, Fill) and s.result in program.own, first.statements))
    first = replace(first, statements=first.statements[len(fills) :])
    specs = tuple([replace(spec, part=0) if spec.part == WHOLE else spec for spec in program.segments])
    phases = tuple([(phase, _spans(phase)) for phase in (first, *others)])
    statements = list(program.statements)
    valued = frozenset([number for each in statements if not isinstance(each, Exchange) for number in used_by(each)])
    last = statements[-2] if isinstance(statements[-2], Exchange) else None
    kinds = tuple([kind.value for kind in program.kinds])
    return Script(program, specs, _first_formats(program), fills, phases, kinds, program.exchanges, valued, last)


def _first_formats(program: RankProgram) -> tuple[Format | None, ...]:
    """Return, by number of a segment, the format of the phase that sends it first; None if no phase does.

    Fill, Sparsify and Select return the segment itself where they change nothing: it is sent as their result.
    """
    formats = [spec.sent_in for spec in program.segments]
    for statement in reversed(list(program.statements)):
        if isinstance(statement, Fill | Sparsify | Select):
            formats[statement.segment] = formats[statement.segment] or formats[statement.result]
    return tuple(formats)


def _spans(phase: RankPhase) -> tuple[ProfiledSpan, ...]:
    numbers = {exchange.number: number for number, exchange in enumerate(phase.exchanges, 1)}

    def name_and_number(statement: Statement) -> tuple[str, int]:
        if isinstance(statement, Exchange):
            return phase.kind.value, numbers[statement.number]
        if isinstance(statement, Across):
            return "across", 0
        return "agree" if isinstance(statement, Deal | Choose | Agree | Split) else "merge", 0

    spans = groupby(phase.statements, name_and_number)
    return tuple([ProfiledSpan(name, number, tuple(statements)) for (name, number), statements in spans])


class Interpreter(Protocol):
    """An interpreter of the statements of one call, which holds its segments: number -> bytes in memory."""

    @property
    def counts_in(self) -> list[int]:
        """The occupied units of each part that this rank contributed."""

    @property
    def counts_out(self) -> list[int]:
        """The occupied units of each part of the sum."""

    def pack(self, contribution: Contribution, divisor: int) -> None:
        """Make this rank's own segments from its gradient, each value divided by ``divisor``."""

    def begin(self, phase: RankPhase, stats: PhaseStats) -> None:
        """Begin ``phase``, whose next statements ``stats`` counts."""

    def play(self, statement: Statement) -> None:
        """Carry out ``statement``: make its results of the segments that are held."""

    def free(self, segments: Sequence[int]) -> None:
        """Free ``segments``, by number: no later statement uses them."""

    def end(self) -> None:
        """Wait until all packets sent in the phase are on their way."""

    def expand_into(self, tensor: torch.Tensor) -> None:
        """Turn ``tensor`` [units, width], the packed values, into the sum; absent units are +0."""

    def expand_units(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sum as ascending unit ids [k] int64 and values [k, width]."""


def play_phases(script: Script, interpreter: Interpreter, channel: Channel, stats: Mapping[str, PhaseStats]) -> None:
    """Play the phases of ``script``, whose messages go through ``channel``; ``stats`` are by their kind."""
    for phase, spans in script.phases:
        started, of_phase = time.perf_counter(), stats[phase.kind.value]
        interpreter.begin(phase, of_phase)
        for span in spans:
            with within(span.name, span.number) if channel.turn.watched else NOTHING:
                for statement in span.statements:
                    interpreter.play(statement)
                    channel.turn.exchanges -= isinstance(statement, Exchange)
                    interpreter.free(statement.frees)
        interpreter.end()
        of_phase.seconds += time.perf_counter() - started


class CpuCall:
    """The call of one rank over a tensor in host memory, whose messages go through ``channel``."""

    def __init__(
        self,
        script: Script,
        interpreter: Interpreter,
        channel: Channel,
        layout: Layout,
        of_result: Layout | None = None,
    ) -> None:
        self.script, self.interpreter, self.channel, self.layout = script, interpreter, channel, layout
        self.of_result = of_result or layout
        self.stats = {kind: PhaseStats() for kind in script.kinds}

    def reduce(self, tensor: torch.Tensor, divisor: int, turn: Turn) -> Reduction:
        """Return the sum over the ranks in the shape and layout of ``tensor``, each value divided by ``divisor`` first.

        A dense tensor is overwritten, but for half a program, whose result is a sparse tensor of that shape. ``turn``
        is passed on with the first wait. Raises SynchronisationError as the channel and the interpreter do.
        """
        self.channel.turn = turn
        turn.exchanges += self.script.exchanges
        started = time.perf_counter()
        with within("pack") if turn.watched else NOTHING:
            contribution = contribution_of(tensor, self.layout)
            self.interpreter.pack(contribution, divisor)
        packed = time.perf_counter()
        play_phases(self.script, self.interpreter, self.channel, self.stats)
        turn.settle()
        played = time.perf_counter()
        with within("expand") if turn.watched else NOTHING:
            result = self._result(tensor, contribution)
        seconds_pack, seconds_expand = packed - started, time.perf_counter() - played
        counts = self.interpreter.counts_in, self.interpreter.counts_out
        return Reduction(result, *counts, seconds_pack, seconds_expand, waited=self.channel.waited)

    def _result(self, tensor: torch.Tensor, contribution: Contribution) -> torch.Tensor:
        if self.of_result.is_sparse:
            return sparse_result(*self.interpreter.expand_units(), self.of_result)
        self.interpreter.expand_into(contribution.values)
        if not tensor.is_contiguous():
            tensor.detach().copy_(contribution.values)
        return tensor


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


@dataclass(frozen=True, slots=True)
class CallStarter:
    """The common parts of all calls of ``script`` over tensors of one ``layout``, each with a ``channel`` of its own.

    A call uses the one of ``rooms`` of its number.
    """

    channel: Callable[[CallHeader], Channel]
    layout: Layout
    make: MakeCall
    script: Script
    rooms: Rooms

    def start(self, header: CallHeader, losses: CallLosses | None = None) -> CpuCall:
        """Begin a call whose messages carry ``header``, and which loses values as ``losses`` says."""
        return self.make(self.script, self.channel(header), self.rooms[header.call % len(self.rooms)], losses)


class SegmentInterpreter:
    """Interpreter of segments; ``held`` are the present ones, by number."""

    counts_in: list[int]
    own: int
    """The bitmap of this rank's own units in all parts, which ``keep`` owns."""
    keep: object

    number = 0
    """The number of the phase, from 1."""

    def __init__(
        self, script: Script, channel: Channel, ops: SegmentOps, room: Room, coded: CodedOps | None = None
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
