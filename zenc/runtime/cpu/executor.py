"""CPU executor: plays the rank program of one call, statement by statement.

    Script  = RankProgram  SegmentSpec*  Format?*  fills: Fill*  kind+  (RankPhase ProfiledSpan*)+
    ProfiledSpan = what number  Statement+

A script is made once for all calls. A span is one range to a profiler. What statements do is the interpreters' own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, takewhile
from typing import Protocol

import torch

from zenc.rank_ir.ir import (
    WHOLE,
    Agree,
    Exchange,
    Fill,
    RankPhase,
    RankProgram,
    SegmentSpec,
    Sparsify,
    Split,
    Statement,
)
from zenc.runtime.backend_api import Reduction
from zenc.runtime.cpu.channel import Channel
from zenc.runtime.layout import Contribution, Layout, contribution_of, sparse_result
from zenc.runtime.ranges import within
from zenc.runtime.stats import PhaseStats
from zenc.scheme.model import Format


@dataclass(frozen=True, slots=True)
class ProfiledSpan:
    """``statements`` in a row of one phase: an exchange, or what is made of what has come."""

    what: str
    number: int
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """``program`` as a CPU plays it.

    Of each segment ``specs`` has what is known, an index set being of part 0, and ``formats`` in which it may be sent
    first; None: it is not sent. ``fills`` complete what was packed.
    """

    program: RankProgram
    specs: tuple[SegmentSpec, ...]
    formats: tuple[Format | None, ...]
    fills: tuple[Statement, ...]
    kinds: tuple[str, ...]
    phases: tuple[tuple[RankPhase, tuple[ProfiledSpan, ...]], ...]


def script_of(program: RankProgram) -> Script:
    """``program``, made ready to be played."""
    first, *others = program.phases
    fills = tuple(takewhile(lambda s: isinstance(s, Fill) and s.result in program.own, first.statements))
    rest = replace(first, statements=first.statements[len(fills) :])
    specs = tuple([replace(spec, part=0) if spec.part == WHOLE else spec for spec in program.segments])
    kinds = tuple([phase.kind.value for phase in program.phases])
    return Script(program, specs, _formats(program), fills, kinds, tuple([(p, _spans(p)) for p in (rest, *others)]))


def _spans(phase: RankPhase) -> tuple[ProfiledSpan, ...]:
    numbers = {exchange.number: at for at, exchange in enumerate(phase.exchanges, 1)}

    def what(statement: Statement) -> tuple[str, int]:
        if isinstance(statement, Exchange):
            return phase.kind.value, numbers[statement.number]
        return "agree" if isinstance(statement, Agree | Split) else "merge", 0

    return tuple([ProfiledSpan(*key, tuple(found)) for key, found in groupby(phase.statements, what)])


def _formats(program: RankProgram) -> tuple[Format | None, ...]:
    """A segment with nothing to fill up or to leave out is its own result, and sent as it is."""
    found = [spec.sent_in for spec in program.segments]
    for statement in reversed(list(program.statements)):
        if isinstance(statement, Fill | Sparsify):
            found[statement.segment] = found[statement.segment] or found[statement.result]
    return tuple(found)


class Interpreter(Protocol):
    """Does what the statements of one call say, and keeps what is held: segment number -> bytes in memory."""

    @property
    def counts_in(self) -> list[int]:
        """The occupied units of each part that this rank contributed."""

    @property
    def counts_out(self) -> list[int]:
        """The occupied units of each part of the sum."""

    def pack(self, contribution: Contribution, divisor: int) -> None:
        """Make this rank's own segments from its gradient, each value divided by ``divisor``."""

    def begin(self, phase: RankPhase, stats: PhaseStats) -> None:
        """The next statements are of ``phase``, which ``stats`` counts."""

    def play(self, statement: Statement) -> None:
        """Do what ``statement`` says."""

    def free(self, segments: Sequence[int]) -> None:
        """Let go of what no statement uses any more."""

    def end(self) -> None:
        """Wait until all that was sent in the phase is on its way."""

    def expand_into(self, tensor: torch.Tensor) -> None:
        """Write the sum to ``tensor`` [units, width], contiguous; absent units become +0."""

    def expand_units(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The sum as ascending unit ids [k] int64 and values [k, width]."""


class CpuCall:
    """A call over a tensor in host memory, whose messages go through ``channel``."""

    def __init__(self, script: Script, interpreter: Interpreter, channel: Channel, layout: Layout) -> None:
        self.script, self.interpreter, self.channel, self.layout = script, interpreter, channel, layout
        self.stats = {kind: PhaseStats() for kind in script.kinds}

    def reduce(self, tensor: torch.Tensor, divisor: int) -> Reduction:
        """The sum in the shape and layout of ``tensor``; a dense one is overwritten."""
        started = time.perf_counter()
        with within("pack"):
            self.interpreter.pack(contribution_of(tensor, self.layout), divisor)
        packed = time.perf_counter()
        self._play_phases()
        played = time.perf_counter()
        with within("expand"):
            result = self._result(tensor)
        times, of = (packed - started, time.perf_counter() - played), self.interpreter
        return Reduction(result, of.counts_in, of.counts_out, *times, waited=self.channel.waited)

    def _play_phases(self) -> None:
        for kind, (phase, spans) in zip(self.script.kinds, self.script.phases, strict=True):
            started, stats = time.perf_counter(), self.stats[kind]
            self.interpreter.begin(phase, stats)
            for span in spans:
                with within(span.what, span.number):
                    for statement in span.statements:
                        self.interpreter.play(statement)
                        self.interpreter.free(statement.frees)
            self.interpreter.end()
            stats.seconds += time.perf_counter() - started

    def _result(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.layout.is_sparse:
            return sparse_result(*self.interpreter.expand_units(), self.layout)
        target = tensor.detach()
        if target.is_contiguous():
            self.interpreter.expand_into(target)
        else:
            buffer = torch.empty(self.layout.shape, dtype=self.layout.dtype)
            self.interpreter.expand_into(buffer)
            target.copy_(buffer)
        return tensor
