"""CPU backend: the rank program of a plan, played among ranks whose tensors are in host memory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from zenc.errors import Diagnostic, TensorError
from zenc.plan.ir import PhaseKind
from zenc.rank_ir.announced import announce_of, announced_of
from zenc.rank_ir.ir import RankProgram
from zenc.runtime.announced.announced_call import AnnounceCall, AnnouncedCall, AnnouncedInterpreter, AnnouncedOwners
from zenc.runtime.backend_api import Owners, Part, is_proved
from zenc.runtime.compression.kernels import CompressionKernels, compression_kernels
from zenc.runtime.compression.losses import CallLosses
from zenc.runtime.cpu.channel import Channel
from zenc.runtime.cpu.directory_interpreter import DirectoryInterpreter, DirectoryOps
from zenc.runtime.cpu.executor import CpuCall, Script, script_of
from zenc.runtime.cpu.headers import CallHeader
from zenc.runtime.cpu.holder_interpreter import HolderInterpreter, HolderOps, wanted_by
from zenc.runtime.cpu.inbox import Room, Rooms, new_rooms
from zenc.runtime.cpu.kernels import Kernels
from zenc.runtime.cpu.lossy.coded_segments import CodedOps
from zenc.runtime.cpu.lossy.interpreter import LossyInterpreter
from zenc.runtime.cpu.ownership import HolderKernels
from zenc.runtime.cpu.segment_interpreter import SegmentInterpreter
from zenc.runtime.cpu.segments import SegmentOps
from zenc.runtime.cpu.tiered.interpreter import OutermostTier, TieredInterpreter, outermost_ops
from zenc.runtime.cpu.transport import Transport
from zenc.runtime.layout import Layout, in_units
from zenc.runtime.memory.block_pool import own_room
from zenc.scheme.compression import Rounded

log = logging.getLogger("zenc")


class CpuBackend:
    """The ``program`` of a plan of ``scheme``, for this rank of ``transport``.

    ``deadline``: seconds for any single wait. ``caution`` is logged when the first tensor comes. ``compression`` is for
    plans that select or encode, ``holding`` for a tier that has owners of its own. ``ordered``: slots are units.
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
        part_of: Callable[[PhaseKind | Rounded], RankProgram] | None = None,
        ordered: bool = False,
        holding: HolderKernels | None = None,
    ) -> None:
        self.script, self.rooms, self._part_of = script_of(program), new_rooms(), part_of
        self._parts: dict[PhaseKind | Rounded, tuple[Script, Rooms]] = {}
        self.scheme, self.transport, self.deadline, self._ordered = scheme, transport, deadline, ordered
        self.code = str(kernels.path)
        self._room = transport.room if any(map(transport.shares, range(transport.size))) else own_room
        self._kernels, self._caution, self._compression = kernels, caution, compression
        self._by_holders = (HolderKernels(kernels.path), wanted_by(program)) if program.announces else None
        self._outermost = None
        if program.across is not None and holding is not None:
            across = program.across.program
            self._outermost = script_of(across), holding, wanted_by(across)
        self.outer_rooms = new_rooms()
        self._cut: tuple[Script, Script] | None = None

    @property
    def compression(self) -> CompressionKernels:
        """The kernels of compression that the backend was made with, or compiled now."""
        return self._compression or compression_kernels()

    def _part(self, part: PhaseKind | Rounded) -> tuple[Script, Rooms]:
        """Return the pushes, the pulls or a rounding program, lowered when first asked for, and room for messages."""
        if part not in self._parts:
            assert self._part_of is not None, "a backend that is asked for a part of a program can lower it"
            self._parts[part] = script_of(self._part_of(part)), new_rooms()
        return self._parts[part]

    def rounds(self, code: Rounded) -> bool:
        """Return whether the program that rounds is proved; a tier with owners of its own has no codes."""
        in_tiers = self._outermost is not None or self._by_holders is not None
        return not in_tiers and is_proved(lambda: self._part(code))

    @property
    def announce_and_rest(self) -> tuple[Script, Script]:
        """The program of a plan by holders, cut after the agreement, made when first asked for."""
        if self._cut is None:
            program = self.script.program
            self._cut = script_of(announce_of(program)), script_of(announced_of(program))
        return self._cut

    def prepare(self, layout: Layout, part: Part = None) -> CpuPrepared:
        """Prepare calls.

        Raises TensorError: ``tensor-too-large``, or ``out-of-memory`` for a hashed mapping's tables.
        """
        if self._caution:
            log.warning("%s", self._caution)
            self._caution = ""
        if part is not None:
            ops, kind = self._ops(layout, self.script.program.parts), part if isinstance(part, PhaseKind) else None
            coded = None if kind else CodedOps(ops, self.compression)
            return CpuPrepared(self, layout, ops, coded, self._part(part), half=kind)
        if self._outermost is not None:
            return self._prepared_tiers(layout, *self._outermost)
        if self._by_holders is None:
            ops = self._ops(layout, self.script.program.parts)
            return CpuPrepared(self, layout, ops, CodedOps(ops, self._compression) if self._compression else None)
        whole = self._ops(layout, 1)
        if self.script.program.by_directory:
            return CpuPrepared(self, layout, DirectoryOps.of(whole, self._by_holders[0], self.script.program.size))
        return CpuPrepared(self, layout, HolderOps(whole, self._ops(replace(layout, width=0), 1), *self._by_holders))

    def _prepared_tiers(
        self, layout: Layout, script: Script, holding: HolderKernels, wanted: torch.Tensor
    ) -> CpuPrepared:
        program = self.script.program
        assert program.across is not None
        ops, part = self._ops(layout, program.parts), program.segments[program.across.segment].part
        return CpuPrepared(self, layout, ops, outermost=(script, outermost_ops(ops, part, script, holding, wanted)))

    def _ops(self, layout: Layout, parts: int) -> SegmentOps:
        geometry = self._kernels.geometry(layout.units, layout.width, parts, dense=not layout.is_sparse)
        return SegmentOps(self._kernels, geometry, layout, self._room, self._ordered and parts == 1)


@dataclass(frozen=True, slots=True)
class CpuPrepared:
    """The common parts of all calls over tensors of one ``layout``; ``part`` of the program, or one ``half`` of it.

    ``outermost``: the program of a tier with owners of its own, and its operations.
    """

    backend: CpuBackend
    layout: Layout
    ops: SegmentOps | HolderOps
    coded: CodedOps | None = None
    part: tuple[Script, Rooms] | None = None
    outermost: tuple[Script, HolderOps] | None = None
    half: PhaseKind | None = None

    def start(self, header: CallHeader, losses: CallLosses | None = None) -> CpuCall:
        """Begin a call whose messages carry ``header``, and which loses values as ``losses`` says."""
        script, rooms = self.part or (self.backend.script, self.backend.rooms)
        channel, room = self._channel(header), rooms[header.call % len(rooms)]
        if isinstance(self.ops, DirectoryOps):
            return CpuCall(script, DirectoryInterpreter(script, channel, self.ops, room), channel, self.layout)
        if isinstance(self.ops, HolderOps):
            return CpuCall(script, HolderInterpreter(script, channel, self.ops, room), channel, self.layout)
        if self.outermost is not None:
            return self._start_tiers(script, channel, room, header)
        ops, coded = self.ops, self.coded
        if self.half is not None:
            interpreter = SegmentInterpreter(script, channel, ops, room)
            return CpuCall(script, interpreter, channel, self.layout, in_units(self.layout))
        if losses is None or coded is None:
            return CpuCall(script, SegmentInterpreter(script, channel, ops, room), channel, self.layout)
        if losses.ends:
            ops = ops.cut_at(losses.ends)
            coded = CodedOps(ops, coded.kernels)
        return CpuCall(script, LossyInterpreter(script, channel, ops, room, coded, losses), channel, self.layout)

    def _start_tiers(self, script: Script, channel: Channel, room: Room, header: CallHeader) -> CpuCall:
        assert self.outermost is not None and isinstance(self.ops, SegmentOps)
        rooms = self.backend.outer_rooms
        outermost = OutermostTier(*self.outermost, rooms[header.call % len(rooms)])
        interpreter = TieredInterpreter(script, channel, self.ops, room, outermost)
        call = CpuCall(script, interpreter, channel, self.layout)
        interpreter.of_kinds = call.stats
        return call

    def _channel(self, header: CallHeader) -> Channel:
        of = self.backend
        return Channel(of.scheme, of.deadline, of.transport, header)

    def ensure_announces(self) -> None:
        """Raise TensorError (``not-announced``) where a directory names the owners, in the call itself."""
        assert isinstance(self.ops, HolderOps)
        if isinstance(self.ops, DirectoryOps):
            of, size = self.backend.scheme, self.backend.transport.size
            message = f"{of} has a directory among {size} ranks, which names the owners in the call itself"
            help = f"leave the announcement out, or let all hear all: holders(few = {size}) does"
            raise TensorError(Diagnostic("not-announced", message, help=help))

    def start_announce(self, header: CallHeader) -> AnnounceCall:
        """Begin a call of a plan by holders whose messages carry ``header``."""
        assert isinstance(self.ops, HolderOps)
        (script, _), rooms = self.backend.announce_and_rest, self.backend.rooms
        channel, room = self._channel(header), rooms[header.call % len(rooms)]
        return AnnounceCall(script, HolderInterpreter(script, channel, self.ops, room), channel, self.layout)

    def start_announced(self, header: CallHeader, owners: Owners) -> AnnouncedCall:
        """Begin a call with ``owners``; where it has to begin again, that is the call of the next number."""
        assert isinstance(self.ops, HolderOps) and isinstance(owners, AnnouncedOwners)
        (_, script), channel = self.backend.announce_and_rest, self._channel(header)
        interpreter = AnnouncedInterpreter(script, channel, self.ops, {}, owners)
        again = partial(self.start, replace(header, call=header.call + 1))
        return AnnouncedCall(CpuCall(script, interpreter, channel, self.layout), again, self.backend.script.exchanges)
