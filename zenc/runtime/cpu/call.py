"""One call over tensors in host memory: pack this rank's gradient, exchange, and expand the sum."""

from __future__ import annotations

import time
from typing import Protocol

import torch

from zenc.runtime.backend_api import Reduction
from zenc.runtime.cpu.channel import Channel
from zenc.runtime.cpu.segments import HeldSegment
from zenc.runtime.cpu.value_payload import Rows
from zenc.runtime.layout import Contribution, Layout, contribution_of, sparse_result
from zenc.runtime.output import PartT, Summed
from zenc.runtime.ranges import within
from zenc.runtime.stats import PhaseStats


class Exchanging(Protocol[PartT]):
    """Sums parts of one kind among the ranks: an Exchange, or a HolderExchange."""

    @property
    def stats(self) -> dict[str, PhaseStats]: ...

    @property
    def link(self) -> Channel: ...

    def pack(self, contribution: Contribution, divisor: int) -> list[HeldSegment]: ...

    def run(self, own: list[HeldSegment]) -> Summed[PartT]: ...

    def counts_in(self, own: list[HeldSegment]) -> list[int]: ...


class HostCall:
    """``exchange`` between a tensor and a tensor."""

    def __init__(self, exchange: Exchanging[HeldSegment] | Exchanging[Rows], layout: Layout) -> None:
        self.exchange, self.layout = exchange, layout

    @property
    def stats(self) -> dict[str, PhaseStats]:
        return self.exchange.stats

    def reduce(self, tensor: torch.Tensor, divisor: int) -> Reduction:
        """The sum in the layout of ``tensor``; a dense one is overwritten."""
        exchange, layout = self.exchange, self.layout
        started = time.perf_counter()
        with within("pack"):
            own = exchange.pack(contribution_of(tensor, layout), divisor)
        packed = time.perf_counter()
        summed = exchange.run(own)
        exchanged = time.perf_counter()
        with within("expand"):
            result = _result(tensor, layout, summed)
        times = packed - started, time.perf_counter() - exchanged
        return Reduction(result, exchange.counts_in(own), summed.counts, *times, waited=exchange.link.waited)


def _result(tensor: torch.Tensor, layout: Layout, summed: Summed[HeldSegment] | Summed[Rows]) -> torch.Tensor:
    if layout.is_sparse:
        return sparse_result(*summed.units(), layout)
    target = tensor.detach()
    if target.is_contiguous():
        summed.into(target)
    else:
        buffer = torch.empty(layout.shape, dtype=layout.dtype)
        summed.into(buffer)
        target.copy_(buffer)
    return tensor
