"""The interpreter of flowing programs by holders: behind the announce, values leave once they are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from zenc.rank_ir.ir import Carries, Exchange, Message, RankPhase, Statement, used_by
from zenc.runtime.call.stats import PhaseStats
from zenc.runtime.cpu.channel import Channel
from zenc.runtime.cpu.executor import Script
from zenc.runtime.cpu.flow import MOST_SENT, Coming
from zenc.runtime.cpu.holder_interpreter import HolderInterpreter, HolderOps
from zenc.runtime.cpu.inbox import Room


class HolderFlowInterpreter(HolderInterpreter):
    """The interpreter of a call by holders whose program flows, over a transport that carries each message whole."""

    def __init__(self, script: Script, channel: Channel, ops: HolderOps, room: Room) -> None:
        super().__init__(script, channel, ops, room)
        self.coming, self.left = Coming(self.held, self._take), len(script.phases)

    def begin(self, phase: RankPhase, stats: PhaseStats) -> None:
        """Begin as ``HolderInterpreter.begin`` does; no receive is posted ahead."""
        super().begin(phase, stats)
        self.ahead, self.left = (), self.left - 1

    def play(self, statement: Statement) -> None:
        """Play as ``HolderInterpreter.play`` does, once what it uses has come."""
        if self.phase.carries is Carries.SETS:
            super().play(statement)
        elif not isinstance(statement, Exchange):
            self.coming.bring(used_by(statement))
            super().play(statement)
        elif statement.receives:
            self.coming.expect(statement, self.stats)
        else:
            self.coming.bring(used_by(statement))
            self._leave(statement)

    def free(self, segments: Sequence[int]) -> None:
        """Free as ``HolderInterpreter.free`` does; what nothing uses has come before."""
        if self.phase.carries is not Carries.SETS:
            self.coming.bring(segments)
        super().free(segments)

    def end(self) -> None:
        """Take what has not been taken, and wait for what was sent, where the announce or the program ends."""
        if not self.left:
            self.coming.bring_all()
        if not self.left or self.phase.carries is Carries.SETS:
            super().end()

    def _leave(self, step: Exchange) -> None:
        last = self.sending[-MOST_SENT:]
        del self.sending[len(self.sending) - len(last) :]
        self.channel.wait_all(self.sending)
        self.sending += last
        self._send(step)

    def _take(self, step: Exchange, message: Message, stats: PhaseStats) -> None:
        """Take ``message``; complete rows are placed while it comes."""
        self._place()
        now, self.stats = self.stats, stats
        alone = replace(step, receives=(message,))
        self._receive(alone, self._post(alone))
        self.stats = now
