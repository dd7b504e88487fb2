"""CPU backend: the rank program of a plan, played among ranks whose tensors are in host memory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from zenc.errors import Diagnostic, TensorError
from zenc.plan.ir import PhaseKind
from zenc.rank_ir.flowing import flowing
from zenc.rank_ir.ir import RankProgram
from zenc.runtime.backend_api import AgreedOwners, Part, is_proved
from zenc.runtime.call.layout import Layout, in_units
from zenc.runtime.cpu.channel import CallHeader, Channel
from zenc.runtime.cpu.executor import CallStarter, CpuCall, MakeCall, Script, SegmentInterpreter, calls_by, script_of
from zenc.runtime.cpu.flow import FlowInterpreter
from zenc.runtime.cpu.inbox import Rooms, new_rooms
from zenc.runtime.cpu.kernels import Kernels
from zenc.runtime.cpu.segments import SegmentOps
from zenc.runtime.transports.block_pool import own_room
from zenc.runtime.transports.transport import Transport
from zenc.scheme.compression import Rounded
from zenc.wire.formats import BY_BYTES, FormatCosts

if TYPE_CHECKING:  # what few plans have is imported by these
    from zenc.runtime.announced.announced_call import AnnounceCall, AnnouncedCall
    from zenc.runtime.cpu.holder_interpreter import HolderOps
    from zenc.runtime.cpu.ownership import HolderKernels
    from zenc.runtime.lossy.kernels import CompressionKernels

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
        costs: FormatCosts = BY_BYTES,
    ) -> None:
        self._flows = program.early > 0 and all(
            transport.whole(peer) for peer in range(program.size) if peer != program.rank
        )
        self.script, self._program = script_of(flowing(program) if self._flows else program), program
        self.rooms, self._part_of = new_rooms(), part_of
        self._parts: dict[PhaseKind | Rounded, tuple[Script, Rooms]] = {}
        self.scheme, self.transport, self.deadline, self._ordered = scheme, transport, deadline, ordered
        self.code, self._costs = str(kernels.path), costs
        self._room = transport.room if any(map(transport.shares, range(transport.size))) else own_room
        self._kernels, self._caution, self._compression = kernels, caution, compression
        self._holding, self._outer_rooms = holding, new_rooms()
        self._cut: tuple[Script, Script] | None = None

    @property
    def compression(self) -> CompressionKernels:
        """The kernels of compression that the backend was made with, or compiled now."""
        from zenc.runtime.lossy.kernels import compression_kernels

        return self._compression or compression_kernels()

    def _part(self, part: PhaseKind | Rounded) -> tuple[Script, Rooms]:
        """Return the pushes, the pulls or a rounding program, lowered when first asked for, and room for messages."""
        if part not in self._parts:
            assert self._part_of is not None, "a backend that is asked for a part of a program can lower it"
            self._parts[part] = script_of(self._part_of(part)), new_rooms()
        return self._parts[part]

    def rounds(self, code: Rounded) -> bool:
        """Return whether the program that rounds is proved; a tier with owners of its own has no codes."""
        program = self.script.program
        return not program.announces and program.across is None and is_proved(lambda: self._part(code))

    def announce_and_rest(self) -> tuple[Script, Script]:
        """Return the program of a plan by holders, cut after the agreement, made when first asked for."""
        if self._cut is None:
            from zenc.rank_ir.announced import announce_of, announced_of

            self._cut = script_of(announce_of(self._program)), script_of(announced_of(self._program))
        return self._cut

    def prepare(self, layout: Layout, part: Part = None) -> CpuPrepared:
        """Prepare calls.

        Raises TensorError: ``tensor-too-large``, or ``out-of-memory`` for a hashed mapping's tables.
        """
        if self._caution:
            log.warning("%s", self._caution)
            self._caution = ""
        program = self.script.program
        if program.announces and part is None:
            return self._prepared_by_holders(layout)
        ops = self._ops(layout, program.parts)
        if program.across is not None and self._holding is not None and part is None:
            from zenc.runtime.cpu.tiered.interpreter import tiered_calls

            calls = tiered_calls(ops, layout, program, self._holding, self._outer_rooms)
        elif isinstance(part, Rounded) or (self._compression is not None and part is None):
            from zenc.runtime.lossy.cpu_interpreter import lossy_calls

            calls = lossy_calls(ops, layout, self.compression)
        else:
            interpret = FlowInterpreter if self._flows and part is None else SegmentInterpreter
            calls = calls_by(interpret, ops, layout, None if part is None else in_units(layout))
        return self._prepared(layout, calls, *(self._part(part) if part is not None else ()))

    def _prepared(
        self,
        layout: Layout,
        make: MakeCall,
        script: Script | None = None,
        rooms: Rooms | None = None,
        ops: HolderOps | None = None,
    ) -> CpuPrepared:
        """Return the preparation of calls that ``make`` makes, by default of the whole program."""
        channel = partial(Channel, self.scheme, self.deadline, self.transport)
        script, rooms = script or self.script, rooms or self.rooms
        return CpuPrepared(channel, layout, make, script, rooms, self.scheme, self.announce_and_rest, ops)

    def _prepared_by_holders(self, layout: Layout) -> CpuPrepared:
        from zenc.runtime.cpu.directory_interpreter import DirectoryInterpreter, DirectoryOps
        from zenc.runtime.cpu.holder_interpreter import HolderInterpreter, HolderOps, wanted_by
        from zenc.runtime.cpu.ownership import HolderKernels

        program, whole = self.script.program, self._ops(layout, 1)
        self._holding = kernels = self._holding or HolderKernels(self._kernels.path)
        if program.by_directory:
            named = DirectoryOps.of(whole, kernels, program.size)
            return self._prepared(layout, calls_by(DirectoryInterpreter, named, layout))
        ops = HolderOps(whole, self._ops(replace(layout, width=0), 1), kernels, wanted_by(program))
        if self._flows:
            from zenc.runtime.cpu.holder_flow import HolderFlowInterpreter

            return self._prepared(layout, calls_by(HolderFlowInterpreter, ops, layout), ops=ops)
        return self._prepared(layout, calls_by(HolderInterpreter, ops, layout), ops=ops)

    def _ops(self, layout: Layout, parts: int) -> SegmentOps:
        geometry = self._kernels.geometry(layout.units, layout.width, parts, dense=not layout.is_sparse)
        return SegmentOps(self._kernels, geometry, layout, self._room, self._ordered and parts == 1, self._costs)


@dataclass(frozen=True, slots=True)
class CpuPrepared(CallStarter):
    """The common parts of all calls over tensors of one layout.

    ``scheme`` is its name. ``ops``: the operations of a plan by holders all of whom hear of each other; ``cut`` returns
    its program, cut after the agreement.
    """

    scheme: str
    cut: Callable[[], tuple[Script, Script]]
    ops: HolderOps | None = None

    def ensure_announces(self) -> None:
        """Raise TensorError (``not-announced``) where a directory names the owners, in the call itself."""
        if self.ops is None:
            size = self.script.program.size
            message = f"{self.scheme} has a directory among {size} ranks, which names the owners in the call itself"
            help = f"leave the announcement out, or let all hear all: holders(few = {size}) does"
            raise TensorError(Diagnostic("not-announced", message, help=help))

    def start_announce(self, header: CallHeader) -> AnnounceCall:
        """Begin a call of a plan by holders whose messages carry ``header``."""
        from zenc.runtime.announced.announced_call import AnnounceCall
        from zenc.runtime.cpu.holder_interpreter import HolderInterpreter

        assert self.ops is not None
        (script, _), channel = self.cut(), self.channel(header)
        room = self.rooms[header.call % len(self.rooms)]
        return AnnounceCall(script, HolderInterpreter(script, channel, self.ops, room), channel, self.layout)

    def start_announced(self, header: CallHeader, owners: AgreedOwners) -> AnnouncedCall:
        """Begin a call with ``owners``; where it has to begin again, that is the call of the next number."""
        from zenc.runtime.announced.announced_call import AnnouncedCall, AnnouncedInterpreter, AnnouncedOwners

        assert self.ops is not None and isinstance(owners, AnnouncedOwners)
        (_, script), channel = self.cut(), self.channel(header)
        interpreter = AnnouncedInterpreter(script, channel, self.ops, {}, owners)
        again = partial(self.start, replace(header, call=header.call + 1))
        return AnnouncedCall(CpuCall(script, interpreter, channel, self.layout), again, self.script.exchanges)
