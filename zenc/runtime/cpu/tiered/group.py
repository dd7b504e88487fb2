"""Groups of ranks: messages among some of all ranks, which are counted from 0 in their group."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from zenc.rank_ir.ir import Exchange
from zenc.runtime.cpu.channel import Channel
from zenc.runtime.cpu.headers import CallHeader
from zenc.runtime.cpu.transport import Pending, Transport


class GroupTransport:
    """The transport ``of`` all ranks, among ``ranks`` of them: rank i of the group is ``ranks[i]``."""

    def __init__(self, of: Transport, ranks: Sequence[int]) -> None:
        self.of, self.ranks, self.rank, self.size = of, ranks, ranks.index(of.rank), len(ranks)

    def shares(self, peer: int) -> bool:
        """Return ``Transport.shares`` of the group's ``peer``."""
        return self.of.shares(self.ranks[peer])

    def whole(self, peer: int) -> bool:
        """Return ``Transport.whole`` of the group's ``peer``."""
        return self.of.whole(self.ranks[peer])

    def room(self, size: int) -> torch.Tensor:
        """Return a tensor [size] of bytes, as ``Transport.room`` does."""
        return self.of.room(size)

    def send(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """Send as ``Transport.send`` does, from ``buffer`` [bytes]."""
        return self.of.send(self.ranks[peer], tag, buffer)

    def receive(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """Receive as ``Transport.receive`` does, into ``buffer`` [bytes]."""
        return self.of.receive(self.ranks[peer], tag, buffer)

    def close(self) -> None:
        """Do nothing: the transport is that of all ranks."""

    def release(self) -> None:
        """Do nothing, as ``close``."""


class GroupChannel(Channel):
    """The part of a ``whole`` call that is among ``ranks``, over a tensor of ``units`` units.

    Waits are those of the whole call, and errors name ranks as it does.
    """

    def __init__(self, whole: Channel, ranks: Sequence[int], units: int) -> None:
        header = CallHeader(whole.call.call, whole.call.signature, units)
        super().__init__(whole.scheme, whole.deadline, GroupTransport(whole.transport, ranks), header)
        self.ranks, self.turn, self.waited = ranks, whole.turn, whole.waited

    def _wait(self, pending: Pending, peer: int, step: Exchange, size: int | None, toward: str) -> torch.Tensor:
        return super()._wait(pending, self.ranks[peer], step, size, toward)
