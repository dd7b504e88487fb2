"""The channel of a call: transport, common header, tags and deadline of all its messages.

Every wait has a deadline, and its error names scheme, step, peer and bytes.
"""

from __future__ import annotations

import time
from typing import TypeAlias

from zenc.errors import Diagnostic, SynchronisationError, first_line
from zenc.rank_ir.ir import Exchange
from zenc.runtime.cpu.headers import CallHeader, message_header
from zenc.runtime.cpu.transport import Pending, Transport

ROUND_BITS = 14
"""Tags are 31 bits: the call modulo 2^16, the round, and which packet of a message."""

Sending: TypeAlias = tuple[Pending, int, int, Exchange]
"""A packet that is being sent, the peer that it is for, the bytes of the whole message, and its step."""


class Channel:
    """One rank's end of one call. ``deadline`` in seconds bounds every single wait."""

    def __init__(self, scheme: str, deadline: float, transport: Transport, call: CallHeader) -> None:
        self.scheme, self.deadline, self.transport, self.call = scheme, deadline, transport, call
        self.head = message_header(call, transport.rank, [], 0)
        self.waited: dict[int, float] = {}
        """Peer -> seconds of waiting for it so far."""
        self._tag = (call.call & 0xFFFF) << ROUND_BITS + 1

    def tag(self, step: Exchange, packet: int) -> int:
        """The tag of the first (0) or second (1) packet of a message of ``step``."""
        return self._tag | (step.number & (1 << ROUND_BITS) - 1) << 1 | packet

    def wait(self, pending: Pending, peer: int, step: Exchange, size: int | None) -> None:
        """Wait for a packet of a message of ``size`` bytes; raises SynchronisationError if it does not come."""
        started = time.perf_counter()
        try:
            pending.wait(self.deadline)
        except RuntimeError as error:
            raise self._failed(error, time.perf_counter() - started, f"from rank {peer}", step, size) from error
        self.waited[peer] = self.waited.get(peer, 0.0) + time.perf_counter() - started

    def wait_all(self, sending: list[Sending]) -> None:
        """Wait until all that is ``sending`` is on its way, and forget it; raises SynchronisationError as ``wait``."""
        for pending, peer, size, step in sending:
            started = time.perf_counter()
            try:
                pending.wait(self.deadline)
            except RuntimeError as error:
                raise self._failed(error, time.perf_counter() - started, f"to rank {peer}", step, size) from error
            self.waited[peer] = self.waited.get(peer, 0.0) + time.perf_counter() - started
        sending.clear()

    def _failed(
        self, error: RuntimeError, seconds: float, toward: str, step: Exchange, size: int | None
    ) -> SynchronisationError:
        what = f"{'a message' if size is None else f'a message of {size:,} bytes'} {toward}"
        where = f"(scheme {self.scheme}, step {step.number}, call {self.call.call})"
        late = seconds >= self.deadline * 0.95
        return _late(what, where, self.deadline) if late else _lost(what, where, error)


def _late(toward: str, where: str, deadline: float) -> SynchronisationError:
    message = f"{toward} did not get through within the deadline of {deadline:g} s {where}"
    help = "see whether that rank is alive and makes the same calls; deadline= sets how long to wait"
    return SynchronisationError(Diagnostic("deadline", message, help=help))


def _lost(toward: str, where: str, error: RuntimeError) -> SynchronisationError:
    notes = (first_line(error),)
    help = "a rank has died or given up: its own output says why"
    return SynchronisationError(Diagnostic("peer-lost", f"{toward} was lost {where}", notes=notes, help=help))
