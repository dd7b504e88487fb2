"""The interpreter of flowing programs: messages are taken when something uses what they bring.

Those of a peer are taken in the order in which it sends them, and none is left for more than ``AHEAD`` steps; a rank
with ``MOST_SENT`` messages on their way waits, too. So memory is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

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


class FlowInterpreter(SegmentInterpreter):
    """The interpreter of a call whose program flows, over a transport that carries each message whole."""

    def __init__(self, script: Script, channel: Channel, ops: SegmentOps, room: Room) -> None:
        super().__init__(script, channel, ops, room)
        self.coming: dict[int, deque[tuple[int, Exchange, Message, PhaseStats]]] = {}
        self.sender: dict[int, int] = {}
        self.steps = 0

    def play(self, statement: Statement) -> None:
        """Play as ``SegmentInterpreter.play`` does, once what it uses has come."""
        if not isinstance(statement, Exchange) or not statement.receives:
            self._await(used_by(statement))
            super().play(statement)
            return
        self.steps += 1
        for message in statement.receives:
            self.coming.setdefault(message.peer, deque()).append((self.steps, statement, message, self.stats))
            self.sender.update(dict.fromkeys(message.segments, message.peer))
        for waiting in self.coming.values():
            while waiting and waiting[0][0] <= self.steps - AHEAD:
                self._take(waiting)

    def _exchange(self, step: Exchange) -> None:
        self.outbox.finish(most=MOST_SENT)
        loads = [[self.held[number] for number in to.segments] for to in step.sends]
        self.outbox.send(step, step.sends, loads, self.format, self.stats)

    def free(self, segments: Sequence[int]) -> None:
        """Free as ``SegmentInterpreter.free`` does; what nothing uses has come before."""
        self._await(segments)
        super().free(segments)

    def end(self) -> None:
        """Take what has not been taken, and wait for what was sent, where the program ends."""
        if self.number == len(self.script.phases):
            for waiting in self.coming.values():
                while waiting:
                    self._take(waiting)
            super().end()

    def _await(self, segments: Sequence[int]) -> None:
        for segment in segments:
            while segment not in self.held:
                self._take(self.coming[self.sender[segment]])

    def _take(self, waiting: deque[tuple[int, Exchange, Message, PhaseStats]]) -> None:
        _, step, message, stats = waiting.popleft()
        self.held.update(self.inbox.take_whole(step, message, stats))
