"""Announced calls: index sets go first, in a call of their own; then values, if they are of the units of these sets.

    announce        AnnounceCall    mark the ids, exchange index sets, agree   ->  AnnouncedOwners
    announced       AnnouncedCall   compare, split, push, pull                  # or, where a rank has other units:
                                    withdraw, and begin again as a call that nobody announced

Whether a rank has what it announced is known to that rank alone when its gradient is there. It sends values at once if
so; otherwise, in place of each message, a header that withdraws, and a rank that gets one goes on in the same way. In
such a call a message is sent for each of the plan's, also where it is empty: the proof that the contribution of every
rank reaches every rank is then a proof that every rank hears of it before it has a result, and all begin again
together.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from zenc.rank_ir.ir import Exchange, Message, SegmentSpec, Statement
from zenc.runtime.backend_api import AgreedOwners, Call, Reduction
from zenc.runtime.call.call_queue import Turn
from zenc.runtime.call.layout import Contribution, Layout
from zenc.runtime.call.stats import PhaseStats, added
from zenc.runtime.cpu.channel import Channel
from zenc.runtime.cpu.executor import CpuCall, Script, play_phases
from zenc.runtime.cpu.geometry import words_of
from zenc.runtime.cpu.holder_interpreter import HolderInterpreter, HolderOps
from zenc.runtime.cpu.inbox import Room
from zenc.runtime.cpu.ownership import Agreement
from zenc.runtime.cpu.segments import HeldSegment
from zenc.runtime.cpu.value_payload import Rows


@dataclass(frozen=True, slots=True)
class AnnouncedOwners(AgreedOwners):
    """The owners of all units that any rank has announced, and ``own``, the bitmap of what this one has.

    ``keep`` owns it. Any number of calls may use them.
    """

    agreement: Agreement
    own: int
    keep: object

    def are_of(self, segment: HeldSegment) -> bool:
        """Return whether ``segment``, of all units, has exactly the units that this rank has announced."""
        size = 8 * words_of(self.agreement.units)
        return ctypes.string_at(self.own, size) == ctypes.string_at(segment.bitmap, size)


class AnnounceCall(CpuCall):
    """The call of one rank that tells the others its future units."""

    def __init__(self, script: Script, interpreter: HolderInterpreter, channel: Channel, layout: Layout) -> None:
        super().__init__(script, interpreter, channel, layout)
        self.holding = interpreter

    def announce(self, units: torch.Tensor, turn: Turn) -> AnnouncedOwners:
        """Return the owners, given the ``units`` [n] int64 of this rank, which may repeat.

        ``turn`` is passed on with the first wait. Raises SynchronisationError as the channel and the interpreter do.
        """
        self.channel.turn = turn
        turn.exchanges += self.script.exchanges
        bitmap, keep = self.holding.pack_units(units)
        play_phases(self.script, self.interpreter, self.channel, self.stats)
        turn.settle()
        return AnnouncedOwners(self.holding.agreed, bitmap, keep)


class WrongAnnouncement(Exception):
    """The end of a call in which a rank did not have the units that it had announced."""


class AnnouncedInterpreter(HolderInterpreter):
    """Interpreter of a call after its announce: a comparison in place of an agreement."""

    withdrawn = False
    """True where a rank has other units than it announced, as far as this one has heard; values are then of no use."""

    def __init__(
        self, script: Script, channel: Channel, ops: HolderOps, room: Room, announced: AnnouncedOwners
    ) -> None:
        super().__init__(script, channel, ops, room)
        self.announced = announced
        self._agreed_on(announced.agreement, always=True)

    def pack(self, contribution: Contribution, divisor: int) -> None:
        """Pack as ``Interpreter.pack`` does; this rank withdraws if its units differ from those that it announced."""
        (self.own,) = self.ops.whole.pack(contribution, divisor, self.program.rank, [None])
        self.withdrawn = not self.announced.are_of(self.own)

    def play(self, statement: Statement) -> None:
        """Play as ``Interpreter.play`` does; of a withdrawn call only exchanges."""
        if not self.withdrawn or isinstance(statement, Exchange):
            super().play(statement)

    def _sent(self, message: Message) -> torch.Tensor | None:
        return self.packer.withdrawal() if self.withdrawn else super()._sent(message)

    def _opened(
        self, packet: torch.Tensor, size: int, sender: int, specs: Sequence[SegmentSpec], shared: bool
    ) -> list[Rows]:
        if self.packer.withdraws(packet, sender):
            self.withdrawn = True
            return [Rows(spec.part, spec.ranks, 0, 0, packet) for spec in specs]
        return super()._opened(packet, size, sender, specs, shared)

    def _place(self) -> None:
        if not self.withdrawn:
            super()._place()

    def end(self) -> None:
        """End the phase; raise WrongAnnouncement after the last one, when all ranks know."""
        super().end()
        if self.withdrawn and self.phase.name == self.program.phases[-1].name:
            raise WrongAnnouncement


class AnnouncedCall:
    """The call of one rank over a tensor whose units were announced; ``begin_again`` makes one without announcement.

    The call that it makes has ``exchanges`` exchanges.
    """

    def __init__(self, first: Call, begin_again: Callable[[], Call], exchanges: int) -> None:
        self.first, self._begin_again, self._exchanges = first, begin_again, exchanges
        self.again: Call | None = None

    @property
    def stats(self) -> Mapping[str, PhaseStats]:
        """Statistics by phase, in order: of all that was sent."""
        return added(self.again.stats, self.first.stats) if self.again else self.first.stats

    def reduce(self, tensor: torch.Tensor, divisor: int, turn: Turn) -> Reduction:
        """Reduce as ``Call.reduce`` does a ``tensor`` of any shape.

        Begin again if any rank's announcement was wrong.
        """
        turn.exchanges += self._exchanges  # what the call behind this one may have to wait for
        try:
            return self.first.reduce(tensor, divisor, turn)
        except WrongAnnouncement:
            turn.settle()
            turn.exchanges = 0
            self.again = self._begin_again()
            found = self.again.reduce(tensor, divisor, turn)
            return replace(found, made_again=True)
