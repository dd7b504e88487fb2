"""CPU backend: the rank program of a plan, played among ranks whose tensors are in host memory."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from zenc.rank_ir.ir import RankProgram
from zenc.runtime.compression.kernels import CompressionKernels, compression_kernels
from zenc.runtime.compression.losses import CallLosses
from zenc.runtime.cpu.channel import Channel
from zenc.runtime.cpu.coded_segments import CodedOps
from zenc.runtime.cpu.executor import CpuCall, script_of
from zenc.runtime.cpu.headers import CallHeader
from zenc.runtime.cpu.holder_interpreter import HolderInterpreter, HolderOps, wanted_by
from zenc.runtime.cpu.inbox import Room
from zenc.runtime.cpu.kernels import Kernels
from zenc.runtime.cpu.ownership import HolderKernels
from zenc.runtime.cpu.segment_interpreter import SegmentInterpreter
from zenc.runtime.cpu.segments import SegmentOps
from zenc.runtime.cpu.transport import Transport
from zenc.runtime.layout import Layout

log = logging.getLogger("zenc")


class CpuBackend:
    """The ``program`` of a plan of ``scheme``, for this rank of ``transport``.

    ``deadline``: seconds for any single wait. ``caution`` is logged when the first tensor comes. ``compression``: for
    plans that select or encode.
    """

    def __init__(
        self,
        scheme: str,
        program: RankProgram,
        kernels: Kernels,
        transport: Transport,
        deadline: float,
        caution: str = "",
        compression: CompressionKernels | None = None,
    ) -> None:
        self.script, self.room = script_of(program), Room()
        self.scheme, self.transport, self.deadline = scheme, transport, deadline
        self.code = str(kernels.path)
        self._kernels, self._caution, self._compression = kernels, caution, compression
        self._by_holders = (HolderKernels(kernels.path), wanted_by(program)) if program.announces else None

    @property
    def compression(self) -> CompressionKernels:
        """Those that it was made with, or compiled now."""
        return self._compression or compression_kernels()

    def prepare(self, layout: Layout) -> CpuPrepared:
        """Raises TensorError: ``tensor-too-large``, and ``out-of-memory`` for the tables of a hashed mapping."""
        if self._caution:
            log.warning("%s", self._caution)
            self._caution = ""
        if self._by_holders is None:
            ops = self._ops(layout, self.script.program.parts)
            return CpuPrepared(self, layout, ops, CodedOps(ops, self._compression) if self._compression else None)
        whole, sets = self._ops(layout, 1), self._ops(replace(layout, width=0), 1)
        return CpuPrepared(self, layout, HolderOps(whole, sets, *self._by_holders))

    def _ops(self, layout: Layout, parts: int) -> SegmentOps:
        geometry = self._kernels.geometry(layout.units, layout.width, parts, dense=not layout.is_sparse)
        return SegmentOps(self._kernels, geometry, layout)


@dataclass(frozen=True, slots=True)
class CpuPrepared:
    """The common parts of all calls over tensors of one ``layout``."""

    backend: CpuBackend
    layout: Layout
    ops: SegmentOps | HolderOps
    coded: CodedOps | None = None

    def start(self, header: CallHeader, losses: CallLosses | None = None) -> CpuCall:
        """A call whose messages carry ``header``, and which loses what ``losses`` says."""
        of = self.backend
        channel = Channel(of.scheme, of.deadline, of.transport, header)
        if isinstance(self.ops, HolderOps):
            return CpuCall(of.script, HolderInterpreter(of.script, channel, self.ops, of.room), channel, self.layout)
        ops, coded = self.ops, self.coded
        if losses is not None and losses.ends and coded is not None:
            ops = ops.cut_at(losses.ends)
            coded = CodedOps(ops, coded.kernels)
        interpreter = SegmentInterpreter(of.script, channel, ops, of.room, coded, losses)
        return CpuCall(of.script, interpreter, channel, self.layout)
