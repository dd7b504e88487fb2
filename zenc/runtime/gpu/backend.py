"""GPU backend: the call sequence of this rank, its kernels, NCCL between the ranks, and their calls over tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import torch

from zenc.codegen.artifact import Artifact
from zenc.errors import Diagnostic, TensorError, ZencError
from zenc.plan.ir import VALUE_KINDS, PhaseKind, Plan
from zenc.rank_ir.halves import lower_half
from zenc.runtime.backend_api import Reduction
from zenc.runtime.communicator import Communicator
from zenc.runtime.compression.gpu_kernels import GpuCompression
from zenc.runtime.compression.losses import CallLosses
from zenc.runtime.cpu.headers import CallHeader
from zenc.runtime.gpu.call_args import ALLOCATE, CallArgs, PhaseCount, failure_of
from zenc.runtime.gpu.device import Arena, GpuDevice, LoadedKernels
from zenc.runtime.gpu.library import CallLibrary
from zenc.runtime.gpu.nccl import nccl_group, tell
from zenc.runtime.gpu.partition import DevicePartition, DevicePartitions, cut_at
from zenc.runtime.gpu.sequence import load_sequence
from zenc.runtime.gpu.sum_selection import SumSelection
from zenc.runtime.layout import Contribution, Layout, contribution_of, in_units, sparse_result
from zenc.runtime.ranges import within
from zenc.runtime.stats import VALUES, PhaseStats
from zenc.runtime.turns import Turn
from zenc.scheme.compression import Fixed, Selection
from zenc.scheme.model import Encoded, Format
from zenc.wire.constants import DTYPE_NUMBERS, MOST_OWNED_ELEMENTS, CallOutcome

if TYPE_CHECKING:
    from zenc.runtime.cpu.announced_call import AnnouncedOwners

Shares: TypeAlias = float | tuple[float, float]
"""As users give it: ``FixedCapacity.own``, or both."""


@dataclass(frozen=True, slots=True)
class FixedCapacity:
    """Of the units of each part the gradient of a rank occupies a share of ``own`` at most, and any sum ``total``."""

    own: float
    total: float

    def __str__(self) -> str:
        return f"capacity {self.own:g}, {self.total:g}"


def capacity_of(given: Shares | None, plan: Plan, size: int) -> FixedCapacity | None:
    """The capacities by ``given`` for ``plan`` among ``size`` ranks. ZencError ``bad-capacity``, ``no-capacity-mode``.

    Without a share for sums they have what all ranks have together.
    """
    if given is None:
        return None
    if why := _no_room_because(plan):
        message = f"{plan.scheme} has no capacity mode: {why}"
        raise ZencError(Diagnostic("no-capacity-mode", message, help="leave out capacity="))
    own, total = given if isinstance(given, tuple) else (given, min(1.0, given * size))
    if not 0 < own <= total <= 1:
        message = f"capacity={given!r} is no share of the units"
        help = "give the greatest density of a rank's gradient, above 0 and up to 1, or a pair: with that of the sum"
        raise ZencError(Diagnostic("bad-capacity", message, help=help))
    return FixedCapacity(own, total)


def _no_room_because(plan: Plan) -> str:
    """Why no room can be made for the calls of ``plan`` before anything is known; empty where it can."""
    later = [phase for phase in plan.phases if phase is not plan.of(PhaseKind.PUSH)[0]]
    if plan.announces:
        return "who holds what decides about its messages, and is asked first"
    if isinstance(plan.mapping, Encoded):
        return "its parts are cut by the bytes of sums, which are not known before"
    if any(isinstance(phase.code, Fixed) for phase in plan.phases):
        return "all ranks agree on the scale of its integers before they send any"
    if any(phase.select for phase in later):
        return "what its owners select of sums is counted before it is sent"
    if any(phase.code is not None and phase.format is not Format.DENSE for phase in plan.phases):
        return "what it encodes has an index, and how many values follow that is not known before"
    return ""


Counts: TypeAlias = "ctypes.Array[ctypes.c_int64]"


@dataclass(frozen=True, slots=True)
class GpuContext:
    """The common parts of all calls. ``library`` owns the handles ``program`` and ``communicator``.

    ``complete``: the parts that a result has; of half a program it may be some. ``kinds``: those of its phases.
    """

    scheme: str
    parts: int
    complete: int
    kinds: tuple[PhaseKind, ...]
    library: CallLibrary
    program: int | None
    kernels: LoadedKernels
    communicator: int
    gpu: GpuDevice
    nothing: torch.Tensor
    """Some memory of the GPU."""
    deadline: float
    capacity: FixedCapacity | None = None
    """None: exact mode."""
    selections: tuple[tuple[Selection, ...], ...] = ()
    """Those of sums before each phase; there is none before the first."""
    compression: GpuCompression | None = None
    """Kernels of plans that select or encode."""

    @property
    def announces(self) -> bool:
        """Whether ranks tell each other what they hold before they send it."""
        return PhaseKind.ANNOUNCE in self.kinds


@dataclass(slots=True)
class Workspace:
    """The device memory that calls of one layout use, one after another."""

    wanted: int = 0
    """Bytes that the last call would have been content with, beside its result."""

    def lend(self, call: CallArgs, arena: Arena) -> None:
        """Give ``call`` as much in one piece, so that it seldom asks for more, and all of it can be used again."""
        call.arena = arena.allocate(None, self.wanted) if self.wanted else 0
        call.arena_bytes = self.wanted if call.arena else 0


class GpuCall:
    """A call of one rank over tensors in a GPU's memory. It has ended on the GPU too when ``reduce`` returns."""

    def __init__(
        self,
        loaded: GpuContext,
        layout: Layout,
        cut: DevicePartition,
        envelope: CallHeader,
        workspace: Workspace,
        losses: CallLosses | None = None,
        of_result: Layout | None = None,
    ) -> None:
        self.loaded, self.layout, self.cut, self.envelope = loaded, layout, cut, envelope
        self.workspace, self.losses, self.of_result = workspace, losses, of_result or layout
        self.call = CallArgs()
        self._selects: SumSelection | None = None

    @property
    def stats(self) -> dict[str, PhaseStats]:
        """By phase, in order."""
        bare = self.loaded.announces  # what owners get and give has no index
        return {kind.value: _phase_stats(self.call.phase(kind), bare) for kind in self.loaded.kinds}

    def reduce(self, tensor: torch.Tensor, divisor: int, turn: Turn) -> Reduction:
        """The sum in the shape and layout of ``tensor``; a dense one is overwritten. Its ``turn`` is not passed on.

        But for half a program, whose result is a sparse tensor of that shape.
        """
        arena = Arena(self.loaded.gpu)
        target = None if self.of_result.is_sparse else _target(tensor)
        self.workspace.lend(self.call, arena)
        counts_in, counts_out = self.run(tensor, target, divisor, arena.allocate)
        self.workspace.wanted = self.call.arena_wanted
        result = self.sparse(arena, self.call.count_out) if target is None else _into(tensor, target)
        return Reduction(result, list(counts_in), list(counts_out), 0.0, 0.0, bool(self.call.made_again))

    def run(
        self,
        tensor: torch.Tensor,
        target: torch.Tensor | None,
        divisor: int,
        allocate: Callable[[object, int], int],
        report: torch.Tensor | None = None,
    ) -> tuple[Counts, Counts]:
        """The sum of ``tensor`` into ``target``, or into memory of ``allocate``; counts of its parts, in and out.

        With a ``report``, pinned int64 [1 + 2 * parts], the call is only put on the stream, for a graph to capture.
        """
        loaded = self.loaded
        counts_in, counts_out = (ctypes.c_int64 * loaded.parts)(), (ctypes.c_int64 * loaded.complete)()
        contribution = contribution_of(tensor, self.layout)  # maybe a copy, which has to live as long as the call
        self._fill(contribution, target, divisor, counts_in, counts_out)
        callback = ALLOCATE(allocate)
        self.call.allocate = callback
        self.call.report = None if report is None else report.data_ptr()
        with within("kernels and messages"):
            outcome = loaded.library.all_reduce(self.call)
        if outcome is not CallOutcome.DONE:
            selects = self._selects.failure if self._selects else None
            raise loaded.kernels.failure or selects or failure_of(self.call, loaded.scheme)
        if self.losses is not None and self.cut.part_bytes is not None:
            self.losses.part_bytes = list(self.cut.part_bytes)
        return counts_in, counts_out

    def _fill(
        self,
        contribution: Contribution,
        target: torch.Tensor | None,
        divisor: int,
        counts_in: Counts,
        counts_out: Counts,
    ) -> None:
        """Say what to sum, with what, and where the results go."""
        call, layout, loaded = self.call, self.layout, self.loaded
        ids = contribution.unit_ids
        call.number, call.signature = self.envelope.call, self.envelope.signature
        call.units, call.width, call.dtype = layout.units, layout.width, DTYPE_NUMBERS[layout.dtype_name]
        self.cut.fill(call)
        if ids is not None:  # an empty tensor has no address, and no address means a dense tensor
            call.ids, call.n = ids.data_ptr() or loaded.nothing.data_ptr(), ids.numel()
        call.values, call.divisor = contribution.values.data_ptr(), divisor
        call.dense_out = None if target is None else target.data_ptr()
        if self.losses is not None:
            self._fill_losses(self.losses)
        call.program, call.kernels, call.communicator = loaded.program, loaded.kernels.handle, loaded.communicator
        call.stream, call.side = loaded.gpu.streams()
        call.deadline = int(loaded.deadline * 1e6)
        if loaded.capacity is not None:
            call.own_share, call.sum_share = loaded.capacity.own, loaded.capacity.total
        call.counts_in, call.counts_out = ctypes.addressof(counts_in), ctypes.addressof(counts_out)

    def _fill_losses(self, losses: CallLosses) -> None:
        call, loaded = self.call, self.loaded
        call.salt, call.residual = losses.salt, None if losses.residual is None else losses.residual.data_ptr()
        if any(losses.chosen(each) for each in loaded.selections):
            assert loaded.compression is not None
            self._selects = SumSelection(loaded.compression, self.layout, loaded.selections, losses)
            call.choose = self._selects.callback

    def sparse(self, arena: Arena, count: int) -> torch.Tensor:
        """The result of ``count`` units, values [count, width], that a call left in memory of ``arena``."""
        layout = self.of_result
        ids = arena.array(self.call.ids_out, (count,), torch.int64)
        values = arena.array(self.call.values_out, (count, layout.width), layout.dtype)
        return sparse_result(ids, values, layout)


def _target(tensor: torch.Tensor) -> torch.Tensor:
    """The memory for a dense sum: the tensor itself, unless it has gaps."""
    plain = tensor.detach()
    return plain if plain.is_contiguous() else torch.empty_like(plain, memory_format=torch.contiguous_format)


def _into(tensor: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    if target.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(target)
    return tensor


def _phase_stats(phase: PhaseCount, bare: bool) -> PhaseStats:
    """``phase`` as the run time counts; ``bare`` values travel alone, and are dense to the sequence."""
    names = {Format.DENSE: VALUES} if bare else {}
    return PhaseStats(
        phase.bytes_sent,
        phase.bytes_received,
        phase.messages_sent,
        phase.messages_received,
        phase.nanoseconds / 1e9,
        {names.get(format, format): size for format, size in phase.sent().items()},
        {names.get(format, format): size for format, size in phase.received().items()},
    )


class GpuBackend:
    """The plan of ``artifact`` on ``gpu``, made by all ranks of ``group`` together.

    Raises VerificationError, BuildError, TargetError, and SynchronisationError ``group-not-made``.
    """

    def __init__(
        self,
        artifact: Artifact,
        gpu: GpuDevice,
        group: Communicator,
        deadline: float,
        capacity: FixedCapacity | None = None,
    ) -> None:
        artifact = replace(artifact, plan=artifact.plan.gathering)
        plan, parts = artifact.plan, artifact.plan.parts(group.size)
        self.code = gpu.name
        self._half_of = partial(lower_half, plan, group.size, group.rank)
        self._halves: dict[PhaseKind, GpuContext] = {}
        try:
            self._played = load_sequence(artifact, group.size, group.rank, deadline)
            library, program = self._played.library, self._played.program
            library.bind(*gpu.libraries(group.size))
            kernels = LoadedKernels(library, gpu.images(artifact), in_bulk=gpu.copies_in_bulk)
            compression = GpuCompression(gpu, artifact, deadline) if plan.is_lossy else None
        except Exception as error:
            tell(group, error, deadline)
            raise
        selections = ((), *(phase.select for phase in plan.phases[1:]))
        nccl, nothing = nccl_group(group, gpu.name, library, deadline), gpu.memory(8)
        kinds = (PhaseKind.ANNOUNCE, *VALUE_KINDS) if plan.announces else VALUE_KINDS
        self._loaded = GpuContext(
            *(plan.scheme, parts, parts, kinds, library, program, kernels, nccl, gpu, nothing, deadline, capacity),
            selections,
            compression,
        )
        self._cuts = DevicePartitions(plan.mapping, parts, library, gpu.uploaded)

    @property
    def compression(self) -> GpuCompression:
        """Those of a plan that selects or encodes."""
        assert self._loaded.compression is not None, "what loses nothing needs no kernels of compression"
        return self._loaded.compression

    def _half(self, half: PhaseKind) -> GpuContext:
        """The pushes or the pulls alone, lowered and loaded when they are first asked for."""
        if half not in self._halves:
            program = self._half_of(half)
            complete, handle = len(program.expand.segments), self._played.loaded(program)
            self._halves[half] = replace(self._loaded, complete=complete, kinds=(half,), program=handle)
        return self._halves[half]

    def prepare(self, layout: Layout, half: PhaseKind | None = None) -> GpuPrepared:
        """Raises TensorError: ``tensor-too-large``, and ``out-of-memory`` for the tables of a hashed mapping."""
        cut = self._cuts.of(layout.units, layout.width)
        if half is not None:
            return GpuPrepared(self._half(half), layout, cut, Workspace(), in_units(layout))
        if self._loaded.announces and layout.width == 1 and layout.units > MOST_OWNED_ELEMENTS:
            raise _too_many_elements(self._loaded.scheme, layout.units)
        return GpuPrepared(self._loaded, layout, cut, Workspace())


def _too_many_elements(scheme: str, units: int) -> TensorError:
    message = f"{scheme} would choose an owner for each of {units:,} single elements, which is slow on a GPU"
    help = (
        "rows=True if the tensor is mostly rows of zeros; else a scheme that is balanced by permutation, as 'balanced'"
    )
    return TensorError(Diagnostic("tensor-too-large", message, help=help))


@dataclass(frozen=True, slots=True)
class GpuPrepared:
    """The common parts of all calls over tensors of one ``layout``, whose results are ``of_result``; None: the same."""

    loaded: GpuContext
    layout: Layout
    cut: DevicePartition
    workspace: Workspace
    of_result: Layout | None = None

    def start(self, header: CallHeader, losses: CallLosses | None = None) -> GpuCall:
        """A call whose messages carry ``header``, and which loses what ``losses`` says."""
        cut = self.cut if losses is None or not losses.ends else cut_at(losses.ends)
        return GpuCall(self.loaded, self.layout, cut, header, self.workspace, losses, self.of_result)

    def ensure_announces(self) -> None:
        """Raises TensorError (``not-announced``): calls on GPUs play whole programs."""
        raise self._not_announced()

    def start_announce(self, header: CallHeader) -> NoReturn:
        """Raises TensorError as ``ensure_announces``."""
        raise self._not_announced()

    def start_announced(self, header: CallHeader, owners: AnnouncedOwners) -> NoReturn:
        """Raises TensorError as ``ensure_announces``."""
        raise self._not_announced()

    def _not_announced(self) -> TensorError:
        message = f"{self.loaded.scheme} announces units in the call itself on a GPU: such calls play whole programs"
        return TensorError(Diagnostic("not-announced", message, help="leave the announcement out"))
