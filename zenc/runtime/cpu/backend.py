"""CPU backend: a plan among ranks whose tensors are in host memory, over a cut that is fixed, or by holders."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch

from zenc.plan.ir import Plan
from zenc.plan.rank_schedule import program
from zenc.runtime.backend_api import Reduction
from zenc.runtime.cpu.executor import Exchange
from zenc.runtime.cpu.headers import CallHeader
from zenc.runtime.cpu.holder_executor import HolderExchange
from zenc.runtime.cpu.holder_kernels import HolderKernels
from zenc.runtime.cpu.inbox import Room
from zenc.runtime.cpu.kernels import Kernels
from zenc.runtime.cpu.rank_phases import rank_phases
from zenc.runtime.cpu.segments import HeldSegment, SegmentOps
from zenc.runtime.cpu.transport import Transport
from zenc.runtime.cpu.value_payload import Rows
from zenc.runtime.layout import Layout, contribution_of, sparse_result
from zenc.runtime.output import Summed
from zenc.runtime.ranges import within
from zenc.runtime.stats import PhaseStats
from zenc.scheme.model import Holders
from zenc.verify.incoming import verify_with_cargo
from zenc.verify.proof import verify

log = logging.getLogger("zenc")

Exchanges: TypeAlias = "Callable[[CallHeader], Exchange | HolderExchange]"


class CpuBackend:
    """``plan``, proved for the ranks of ``transport``; raises VerificationError.

    ``deadline``: seconds for any single wait. ``caution`` is logged when the first tensor comes.
    """

    def __init__(self, plan: Plan, kernels: Kernels, transport: Transport, deadline: float, caution: str = "") -> None:
        make = _by_holders if isinstance(plan.mapping, Holders) else _over_a_cut
        self._exchanges = make(plan, kernels, transport, deadline)
        self._caution = caution

    def prepare(self, layout: Layout) -> CpuPrepared:
        """Raises TensorError: ``tensor-too-large``, and ``out-of-memory`` for the tables of a hashed mapping."""
        if self._caution:
            log.warning("%s", self._caution)
            self._caution = ""
        return CpuPrepared(layout, self._exchanges(layout))


@dataclass(frozen=True, slots=True)
class CpuPrepared:
    """What calls over tensors of one ``layout`` share."""

    layout: Layout
    exchange: Exchanges

    def start(self, header: CallHeader) -> CpuCall:
        """A call whose messages carry ``header``."""
        return CpuCall(self.exchange(header), self.layout)


class CpuCall:
    """One call: pack this rank's gradient, exchange, and expand the sum."""

    def __init__(self, exchange: Exchange | HolderExchange, layout: Layout) -> None:
        self.exchange, self.layout = exchange, layout

    @property
    def stats(self) -> dict[str, PhaseStats]:
        """By phase, in order."""
        return self.exchange.stats

    def reduce(self, tensor: torch.Tensor, divisor: int) -> Reduction:
        """The sum in the layout of ``tensor``; a dense one is overwritten."""
        exchange, layout = self.exchange, self.layout
        started = time.perf_counter()
        with within("pack"):
            own = exchange.pack(contribution_of(tensor, layout), divisor)
        packed = time.perf_counter()
        summed: Summed[HeldSegment] | Summed[Rows] = exchange.run(own)
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


def _over_a_cut(plan: Plan, kernels: Kernels, transport: Transport, deadline: float) -> Callable[[Layout], Exchanges]:
    rounds, proof = verify(plan, transport.size)
    phases, room = rank_phases(plan, program(rounds, transport.rank), transport.size), Room()

    def prepare(layout: Layout) -> Exchanges:
        workshop = SegmentOps(kernels, kernels.geometry(layout.units, layout.width, proof.parts), layout)
        return lambda call: Exchange(plan.scheme, phases, transport, workshop, call, deadline, room)

    return prepare


def _by_holders(plan: Plan, kernels: Kernels, transport: Transport, deadline: float) -> Callable[[Layout], Exchanges]:
    rounds, _, cargo = verify_with_cargo(plan, transport.size, transport.rank)
    steps, room, holding = program(rounds, transport.rank), Room(), HolderKernels(kernels.path)

    def prepare(layout: Layout) -> Exchanges:
        whole = SegmentOps(kernels, kernels.geometry(layout.units, layout.width, 1), layout)
        sets = SegmentOps(kernels, kernels.geometry(layout.units, 0, 1), replace(layout, width=0))
        return lambda call: HolderExchange(plan, steps, cargo, transport, whole, sets, holding, call, deadline, room)

    return prepare
