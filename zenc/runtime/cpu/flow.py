"""Interpreters of flowing programs: messages are taken when something uses what they bring.

Those of a peer are taken in the order in which it sends them, and none is left for more than ``AHEAD`` steps; a rank
with ``MOST_SENT`` messages on their way waits, too. So memory is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from zenc.rank_ir.ir import Exchange, Message, Statement, used_by
from zenc.runtime.call.stats import PhaseStats
from zenc.runtime.cpu.channel import Channel
from zenc.runtime.cpu.executor import Script, SegmentInterpreter
from zenc.runtime.cpu.inbox import Room
from zenc.runtime.cpu.segments import SegmentOps

AHEAD = 8
"""Steps that come in which a message may be left where it is."""
MOST_SENT = 32
"""Most messages of a rank that are on their way when it sends the next one."""


class Coming:
    """Messages on their way to a rank: ``take`` is called with one, its step, and the statistics of its phase.

    It adds to ``held`` what the message brings.
    """

    def __init__(self, held: Mapping[int, object], take: Callable[[Exchange, Message, PhaseStats], None]) -> None:
        self.held, self.take, self.steps = held, take, 0
        self.waiting: dict[int, deque[tuple[int, Exchange, Message, PhaseStats]]] = {}
        self.sender: dict[int, int] = {}

    def expect(self, step: Exchange, stats: PhaseStats) -> None:
        """Add the messages of ``step``, and take those that have been left for long."""
        self.steps += 1
        for message in step.receives:
            self.waiting.setdefault(message.peer, deque()).append((self.steps, step, message, stats))
            self.sender.update(dict.fromkeys(message.segments, message.peer))
        for of in self.waiting.values():
            while of and of[0][0] <= self.steps - AHEAD:
                self._take_first(of)

    def bring(self, segments: Sequence[int]) -> None:
        """Take messages until all ``segments`` are held."""
        for segment in segments:
            while segment not in self.held:
                self._take_first(self.waiting[self.sender[segment]])

    def bring_all(self) -> None:
        """Take all messages."""
        for of in self.waiting.values():
            while of:
                self._take_first(of)

    def _take_first(self, waiting: deque[tuple[int, Exchange, Message, PhaseStats]]) -> None:
        _, step, message, stats = waiting.popleft()
        self.take(step, message, stats)


class FlowInterpreter(SegmentInterpreter):
    """The interpreter of a call whose program flows, over a transport that carries each message whole."""

    def __init__(self, script: Script, channel: Channel, ops: SegmentOps, room: Room) -> None:
        super().__init__(script, channel, ops, room)
        self.coming = Coming(self.held, self._take)

    def play(self, statement: Statement) -> None:
        """Play as ``SegmentInterpreter.play`` does, once what it uses has come."""
        if isinstance(statement, Exchange) and statement.receives:
            self.coming.expect(statement, self.stats)
        else:
            self.coming.bring(used_by(statement))
            super().play(statement)

    def _exchange(self, step: Exchange) -> None:
        self.outbox.finish(most=MOST_SENT)
        loads = [[self.held[number] for number in to.segments] for to in step.sends]
        self.outbox.send(step, step.sends, loads, self.format, self.stats)

    def free(self, segments: Sequence[int]) -> None:
        """Free as ``SegmentInterpreter.free`` does; what nothing uses has come before."""
        self.coming.bring(segments)
        super().free(segments)

    def end(self) -> None:
        """Take what has not been taken, and wait for what was sent, where the program ends."""
        if self.number == len(self.script.phases):
            self.coming.bring_all()
            super().end()

    def _take(self, step: Exchange, message: Message, stats: PhaseStats) -> None:
        self.held.update(self.inbox.take_whole(step, message, stats))
