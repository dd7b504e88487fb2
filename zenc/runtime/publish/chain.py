"""The chain: bytes of one rank brought to all others, each of which passes them on while more comes.

Every link carries the bytes once, so that it takes little longer than to send them to one rank.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

import torch

from zenc.errors import Diagnostic, SynchronisationError, first_line
from zenc.runtime.cpu.channel import corrupt
from zenc.runtime.transports.transport import ROUND_BITS, Pending, Transport

PACKET_BYTES = 1 << 18
"""Most bytes of a packet: far longer than a link needs to start, far shorter than an update."""
MOST_COMING = 4
"""Most packets that a rank is ready to receive before the first of them has come."""
TAG_BITS = ROUND_BITS + 1
"""Bits of a tag that count the packets of a call."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The ranks in a chain from ``root`` on, for one call; ``deadline`` is the seconds of any single wait."""

    transport: Transport
    root: int
    number: int
    deadline: float

    def bring(self, data: torch.Tensor) -> None:
        """Fill ``data`` [bytes] uint8 with the root's; raises SynchronisationError.

        The ids are ``deadline``, ``peer-lost`` and ``corrupt-message``.
        """
        packets = [data[at : at + PACKET_BYTES] for at in range(0, len(data), PACKET_BYTES)]
        coming: deque[Pending] = deque()
        sending = []
        for at, packet in enumerate(packets):
            while self._place and len(coming) < MOST_COMING and at + len(coming) < len(packets):
                coming.append(self._receive(at + len(coming), packets))
            if self._place:
                came = self._wait(coming.popleft(), self._before, "from")
                if len(came) != len(packet):
                    raise corrupt(self._before, f"it has {len(came):,} bytes of an update, for {len(packet):,}")
                if came.data_ptr() != packet.data_ptr():
                    packet.copy_(came)
            if self._place < self.transport.size - 1:
                sending.append(self.transport.send(self._after, self._tag(at), packet))
        for each in sending:
            self._wait(each, self._after, "to")

    @property
    def _place(self) -> int:
        return (self.transport.rank - self.root) % self.transport.size

    @property
    def _before(self) -> int:
        return (self.transport.rank - 1) % self.transport.size

    @property
    def _after(self) -> int:
        return (self.transport.rank + 1) % self.transport.size

    def _tag(self, packet: int) -> int:
        return (self.number & 0xFFFF) << TAG_BITS | packet & (1 << TAG_BITS) - 1

    def _receive(self, at: int, packets: list[torch.Tensor]) -> Pending:
        return self.transport.receive(self._before, self._tag(at), packets[at])

    def _wait(self, pending: Pending, peer: int, toward: str) -> torch.Tensor:
        started = time.perf_counter()
        try:
            return pending.wait(self.deadline)
        except RuntimeError as error:
            late = time.perf_counter() - started >= 0.95 * self.deadline
            what = f"a packet of an update {toward} rank {peer}"
            if late:
                message = f"{what} did not get through within the deadline of {self.deadline:g} s"
                raise SynchronisationError(Diagnostic("deadline", message)) from error
            notes, help = (first_line(error),), "a rank has died or given up: its own output says why"
            raise SynchronisationError(Diagnostic("peer-lost", f"{what} was lost", notes=notes, help=help)) from error
